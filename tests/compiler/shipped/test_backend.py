"""Real torch.compile on the CPU. Its C++ kernels are never replaced, so a run that is expected is always a miss; hits
come from code made for a pretended GPU."""

from __future__ import annotations

import contextlib
import copy
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from kernelopt_bot.compiler import _runtime as runtime
from kernelopt_bot.compiler.shipped import artifact as shipped_artifact
from kernelopt_bot.compiler.shipped.backend import _EDIT, _install_hook, cloning
from kernelopt_bot.sandbox.worker import pretend
from tests.compiler import candidates

pytestmark = pytest.mark.slow


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.second(nn.functional.gelu(self.first(self.norm(x))))
        return x + hidden


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("KERNELOPT_DISABLE", raising=False)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def make(options: dict[str, Any] | None = None, runs: dict[str, runtime.Run] | None = None,
         clone: bool = False) -> runtime.Artifact:
    return runtime.Artifact(runtime.Manifest("block", runs or {}, options or {}, clone, {}, {}, ()))


@pytest.fixture
def expecting(inference: str) -> runtime.Artifact:
    """An artifact whose kernel no CPU graph has."""
    run = candidates.layer_norm_run(inference)
    return make(runs={run.hash: run})


def test_everything_that_users_do_with_a_module() -> None:
    artifact, x = make(), torch.randn(4, 32)
    model = Block().eval()
    plain = copy.deepcopy(model)
    assert artifact.optimize(model) is model
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(x))
        state = {k: v * 1.5 for k, v in plain.state_dict().items()}
        assert list(model.state_dict()) == list(plain.state_dict())
        model.load_state_dict(state)
        plain.load_state_dict(state)
        torch.testing.assert_close(model(x), plain(x))
        torch.testing.assert_close(model(torch.ones(7, 32)), plain(torch.ones(7, 32)))
        torch.testing.assert_close(copy.deepcopy(model)(x), plain(x))
        torch.testing.assert_close(pickle.loads(pickle.dumps(model))(x), plain(x))
        assert not artifact.status(copy.deepcopy(model))["optimized"]
        torch.testing.assert_close(model.double()(x.double()), plain.double()(x.double()))
        torch.testing.assert_close(model.half()(x.half()), plain.half()(x.half()), rtol=1e-2, atol=1e-2)
        assert model.to("meta")(x.half().to("meta")).device.type == "meta"
    assert artifact.status(model)["graphs"] >= 4


def test_training() -> None:
    artifact, x = make({"max_fusion_size": 8}), torch.randn(4, 32)
    model = Block().train()
    plain = copy.deepcopy(model)
    artifact.optimize(model)
    model(x).square().sum().backward()
    plain(x).square().sum().backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    status = artifact.status(model)
    assert status["graphs"] == 2 and not status["covered"]


@pytest.mark.parametrize("gradients", [False, True])
def test_the_recipe_is_for_graphs_without_gradients(gradients: bool) -> None:
    seen: list[int] = []

    class Seeing(runtime.Backend):
        def _inner(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(torch._inductor.config.max_fusion_size)
            return super()._inner(*args, **kwargs)

    default = torch._inductor.config.max_fusion_size
    with torch.set_grad_enabled(gradients):
        torch.compile(Block(), backend=Seeing({}, {"max_fusion_size": default + 1}))(torch.randn(4, 32))
    assert set(seen) == {default if gradients else default + 1}


def test_a_library_class_as_the_root() -> None:
    artifact, x = make(), torch.randn(4, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()
    plain = copy.deepcopy(model)
    artifact.optimize(model)
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(x))
    assert artifact.status(model)["graphs"] == 1
    assert list(model.state_dict()) == list(plain.state_dict())
    assert pickle.loads(pickle.dumps(model))._compiled_call_impl is None


def test_a_miss_keeps_the_compilers_code_and_warns_once(expecting: runtime.Artifact) -> None:
    model, x = Block().eval(), torch.randn(4, 32)
    plain = copy.deepcopy(model)
    expecting.optimize(model)
    with torch.no_grad():
        with pytest.warns(runtime.ArtifactWarning, match="0 of 1 verified kernels"):
            torch.testing.assert_close(model(x), plain(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(torch.randn(5, 32))
    status = expecting.status(model)
    assert status["graphs"] == 2 and not status["covered"] and status["replaced"] == {}


def test_a_miss_runs_eagerly_where_asked(expecting: runtime.Artifact) -> None:
    model, x = Block().eval(), torch.randn(4, 32)
    plain = copy.deepcopy(model)
    expecting.optimize(model, on_miss="eager")
    with torch.no_grad():
        assert torch.equal(model(x), plain(x))
    assert expecting.status(model)["eager"] == 1


def test_a_miss_is_an_error_where_asked(expecting: runtime.Artifact) -> None:
    model = expecting.optimize(Block().eval(), on_miss="error")
    with torch.no_grad(), pytest.raises(Exception, match="0 of 1 verified kernels"):
        model(torch.randn(4, 32))


def test_wrong_use() -> None:
    with pytest.raises(runtime.ArtifactError, match="on_miss"):
        make().optimize(Block(), on_miss="ignore")
    with pytest.raises(runtime.ArtifactError, match="takes a torch"):
        make().optimize(lambda x: x)


def test_switched_off(monkeypatch: pytest.MonkeyPatch, expecting: runtime.Artifact) -> None:
    monkeypatch.setenv("KERNELOPT_DISABLE", "1")
    model = expecting.optimize(Block())
    assert model._compiled_call_impl is None
    assert expecting.status(model)["optimized"] is False


@pytest.mark.parametrize("version", ["2.10.3", "2.14.0+cu140", "3.0", "nightly"])
def test_unknown_torch(version: str, monkeypatch: pytest.MonkeyPatch, expecting: runtime.Artifact) -> None:
    assert not runtime.torch_supported(version)
    monkeypatch.setattr(shipped_artifact, "torch_supported", lambda _: False)
    model = Block().eval()
    with pytest.warns(runtime.ArtifactWarning, match="does not know torch"):
        expecting.optimize(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.randn(4, 32))
    assert model._compiled_call_impl is not None
    assert expecting.status(model)["optimized"] is False
    with pytest.raises(runtime.ArtifactError, match="or on_miss"):
        expecting.optimize(Block(), on_miss="error")


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cpu", "2.13.0.dev20260101"])
def test_known_torch(version: str) -> None:
    assert runtime.torch_supported(version)


def test_status_before_the_first_call_is_an_error() -> None:
    artifact = make()
    model = artifact.optimize(Block())
    with pytest.raises(runtime.ArtifactError, match="no graph was compiled"):
        artifact.status(model)


def test_a_kernel_edited_after_verification_is_said(inference: str) -> None:
    artifact = runtime.Artifact(runtime.Manifest("block", {}, {}, False, {}, {}, ("kernels/norm_0.py",)))
    with pytest.warns(runtime.ArtifactWarning, match="norm_0.py changed after verification"):
        artifact.optimize(Block())


def test_stitched_code_can_be_written_out(tmp_path: Any) -> None:
    artifact = make()
    model = artifact.optimize(Block().eval())
    with torch.no_grad():
        model(torch.randn(4, 32))
    (path,) = artifact.write_stitched(model, tmp_path / "stitched")
    assert "async_compile.cpp_pybinding" in path.read_text()


@contextlib.contextmanager
def editing(runs: dict[str, runtime.Run], done: list[runtime.Substitution]) -> Iterator[None]:
    def edit(text: str) -> str:
        done.append(runtime.substitute(text, runs))
        return done[-1].text

    _install_hook()
    token = _EDIT.set(edit)
    try:
        yield
    finally:
        _EDIT.reset(token)


def test_the_hook_replaces_a_kernel_of_a_pretended_gpu_and_shapes_are_told_apart() -> None:
    texts: list[str] = []

    def inner(gm: Any, examples: Any, **settings: Any) -> Any:
        texts.append(pretend.generate(gm, examples, "sm_90", **settings))
        return pretend.interpreter(gm)

    def compiled(rows: int) -> str:
        from torch._inductor.compile_fx import compile_fx

        torch._dynamo.reset()
        patches = {"fx_graph_cache": False, "compile_threads": 1, "shape_padding": False,
                   "joint_graph_constant_folding": False}
        with torch.no_grad(), torch._functorch.config.patch(enable_autograd_cache=False), warnings.catch_warnings():
            # Inductor's remark on TF32
            warnings.simplefilter("ignore", UserWarning)
            model = torch.compile(Block(), backend=lambda gm, ex: compile_fx(
                gm, ex, inner_compile=lambda g, e, **kw: boxed(inner(g, e, **kw)), config_patches=patches))
            model(torch.randn(4, rows, 32))
        return texts[-1]

    run = candidates.layer_norm_run(compiled(8), columns=32)
    done: list[runtime.Substitution] = []
    with editing({run.hash: run}, done):
        assert f"kernelopt_{run.hash[:12]}_0.run(" in compiled(8)
        assert "kernelopt_" not in compiled(24)
    assert [sum(d.replaced.values()) for d in done] == [1, 0]


def boxed(run: Any) -> Any:
    run._boxed_call = True
    return run


def test_clones_keep_aliasing_strides_and_inputs() -> None:
    base = torch.arange(24.0)
    given = torch.ones(3)

    def graph(args: list[Any]) -> tuple[Any, ...]:
        return (base[:12].view(3, 4), base.view(4, 6).t(), given, None, 7, torch.ones(2).expand(5, 2))

    outputs = cloning(graph, frozenset({2}))([])
    expected = graph([])
    for mine, theirs in zip(outputs, expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()
            assert mine.storage_offset() == theirs.storage_offset()
    assert outputs[2] is given and outputs[3] is None and outputs[4] == 7
    assert outputs[0].untyped_storage().data_ptr() == outputs[1].untyped_storage().data_ptr()
    assert outputs[0].untyped_storage().data_ptr() != base.untyped_storage().data_ptr()


def test_outputs_survive_the_next_call() -> None:
    memory = torch.zeros(4)

    def graph(args: list[Any]) -> list[torch.Tensor]:
        memory.add_(1)
        return [memory]

    call = cloning(graph, frozenset())
    first, second = call([])[0], call([])[0]
    assert first.tolist() == [1.0] * 4 and second.tolist() == [2.0] * 4


def test_with_clones_a_returned_input_is_still_the_input() -> None:
    class Returning(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x * 2

    model, x = make(clone=True).optimize(Returning()), torch.randn(4)
    with torch.no_grad():
        same, doubled = model(x)
    assert same.data_ptr() == x.data_ptr()
    torch.testing.assert_close(doubled, x * 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("options", [{}, {"triton.cudagraphs": True}])
def test_a_replaced_kernel_runs_on_a_gpu(options: dict[str, Any]) -> None:
    model, x = Block(256).eval().cuda(), torch.randn(8, 128, 256, device="cuda")
    plain = copy.deepcopy(model)
    look = make(options)
    with torch.no_grad():
        look.optimize(model)(x)
    text = look._backends[model].graphs[0].source
    run = candidates.layer_norm_run(text)
    artifact, model = make(options, {run.hash: run}, clone=bool(options)), copy.deepcopy(plain)
    torch._dynamo.reset()
    artifact.optimize(model, on_miss="error")
    with torch.no_grad():
        outputs = [model(x * k) for k in (1, 2, 3, 4, 5)]
        for k, output in zip((1, 2, 3, 4, 5), outputs, strict=True):
            torch.testing.assert_close(output, plain(x * k), rtol=1e-4, atol=1e-4)
    assert artifact.status(model)["replaced"] == {run.hash: 1}
