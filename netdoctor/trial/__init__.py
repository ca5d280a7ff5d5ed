"""A job tried on its nodes for a while: started, followed, ended, and judged by what its ranks did.

`running` reaches the nodes, `following` keeps what is known of ranks, `judging` says STARTED or not. Pure but
for `running` and `logs`.
"""
