"""Who holds slow pairs back: node, NIC, path, rail, leaf, or nobody. Pure: samples in, hypotheses out.

Model. A transfer runs at the speed of its slowest part, so with logarithms

    log rate(sample) = log base + excuse(pair) + min(0, f of each suspect that covers it) + noise

`base` is what pairs reach that nothing holds back, `f` one unknown factor per suspect, noise has the width
sigma. A node covers all samples that it takes part in (or those that leave, or enter it), a NIC those of one
rail, a path those between two nodes, a leaf's uplink those that cross it, and so on. Faults only make things
slower, so both unknowns are read where faults do not reach: `base` is the mode below each node's best sample
(a node's best is slow only if the node is), sigma comes from the deviations above it (median absolute
deviation). An expectation never accuses a node that keeps up with its peers: it excuses a pair of slower
hardware, by as much as the pair is expected below those that run at the base, and tells whether all of them
together are slow.

Cost. A set of suspects costs, in nats,

    sum over runs of min(misfit, bad moment) + sum over suspects of (rarity + price of a free factor)

A run is one pair in one round. Its misfit is z^2 / 2 per sample. A slow run may also be a bad moment (CASUAL:
1 in 50, or as often as seen, at the price of a factor of its own), however many samples it has: one run never
tells a path from a moment, a second one does. A run that is too fast for a suspect can hardly be explained
(WONDER): nothing makes a slow link fast for a while, so one good run exonerates more than one bad run
accuses. Rarity is -log of the prior (a node in a hundred, a given path in a thousand, ...), so that one node
is preferred to three paths and one leaf to eight nodes. The price of a free factor is the usual one,
log(range / width of the estimate).

Search. Greedy: take the hypothesis that lowers the cost most, until none does; then each suspect in turn is
taken out and the best substitute, or nothing, put in its place, until the set is stable. Hypotheses arise
from slow samples only, so a node that nobody measured cannot be blamed. Base and sigma are then read again
from the samples that no suspect covers, and once from all of them together: wide noise without suspects may
be the cheaper story.

Confidence. For each suspect the best cost without it (with each substitute, with nothing, with a greedy mix)
gives its probability, 1 / sum(exp(-difference)). Below 0.75 it is not reported as a suspect but as undecided
between it and the substitutes, with the pair whose outcome tells the first two apart.

Modules, from the bottom: noise, samples, hypotheses, search, verdict; rates is the way in from what a scan
measured.
"""

from netdoctor.localise.rates import BUSY, decide, network_rates
from netdoctor.localise.verdict import decode

__all__ = ["BUSY", "decide", "decode", "network_rates"]
