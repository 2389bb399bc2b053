import torch

from .parts import Base


class Model(Base):
    pass


def get_inputs():
    return [torch.randn(3)]
