"""From rates of pairs to who is slow, and how sure that is. Pure: no I/O, no schedule, no verdict."""

from netdoctor.localise.decode import decode
from netdoctor.localise.rates import BUSY, decide, network_rates

__all__ = ["BUSY", "decide", "decode", "network_rates"]
