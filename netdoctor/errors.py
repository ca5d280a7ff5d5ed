"""Errors that end a command with one clear line, and what goes wrong on the way to a node.

InputError              the user can put this right: exit 2
DeadlineReached         --deadline has passed
TransportError          between this machine and an agent; costs a node, never the scan
    ProtocolError       the node's bytes are not what an agent sends: its session is over
        UnreadableReply one frame cannot be read: it costs one answer
    AgentLost           the channel to an agent ended
    LoginFailed         no agent: transport.ssh.record
    HelperGone          Ray's driver ended: transport.ray.rayhelper
    NotProvided         a library cannot be sent to an agent: transport.provide
    NotWanted           a task is not let in: transport.tasks.attending
"""


class InputError(ValueError):
    """The user can put this right: exit 2, nothing was contacted. The message says what to change."""


class DeadlineReached(Exception):
    """`--deadline` has passed; what is known is reported."""


class TransportError(Exception):
    """Something went wrong between this machine and an agent. The text is for people."""


class ProtocolError(TransportError):
    """The node's bytes are not what an agent sends. No frame of it can be found any more."""


class UnreadableReply(ProtocolError):
    """A frame that is whole, and useless: it costs one answer, and the next frame is found."""


class AgentLost(TransportError):
    """The channel to an agent ended."""
