from torch.optim.optimizer import SGD  # noqa: F401
