from __future__ import annotations

import torch
from torch import nn

from kernelopt_bot.sandbox.worker.state import State, held


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(()))
        self.cache = torch.zeros(3)
        self.pair = (torch.zeros(1), 7)
        self.listed = [torch.zeros(1), torch.zeros(2)]
        self.named = {"a": torch.zeros(1)}
        self.view = self.up.weight.detach()[0]
        self.weights = [self.up.weight]
        self.mask = torch.ones(1).expand(4)
        self.same = self.steps


def test_what_a_model_holds() -> None:
    """Not parameters, nor what lies over their memory or a buffer's, nor what is not written in place."""
    model = nn.Sequential(Kept())
    assert {h.name for h in held(model)} == {
        "0.steps", "0.cache", "0.pair.0", "0.listed.0", "0.listed.1", "0.named.a"}


def test_it_is_put_back_in_place() -> None:
    model = Kept()
    before = {h.name: h.tensor for h in held(model)}
    state = State(model)
    for tensor in before.values():
        tensor.add_(1)
    model.cache, model.steps = torch.ones(3), torch.ones(())
    model.listed.pop()
    model.named["a"] = torch.ones(1)
    state.restore()
    after = {h.name: h.tensor for h in held(model)}
    assert all(after[n] is before[n] and not after[n].any() for n in after)
    assert before.keys() - after.keys() == {"listed.1"}, "what the model threw away is not made anew"


def test_state_of_another_shape_is_seen() -> None:
    model = Kept()
    state = State(model)
    assert state.reshaped() == ""
    model.cache = torch.zeros(4)
    assert state.reshaped() == "cache: (3,) became (4,)"
