from __future__ import annotations

from pathlib import Path

import pytest
from torch._inductor.runtime.autotune_cache import AutotuneCache
from torch._inductor.runtime.triton_compat import Config

from kernelopt_bot.sandbox.worker.choices import Choices

CONFIGS = [Config({"XBLOCK": size}, num_warps=warps, num_stages=1) for size, warps in ((512, 8), (1024, 4))]


def cache_of(folder: Path, configs_hash: str = "a list") -> AutotuneCache:
    """Inductor's own, of one kernel, as if it were compiled in this folder."""
    (folder / "ab").mkdir(parents=True, exist_ok=True)
    found = AutotuneCache.create({}, str(folder / "ab" / "cabcd.py"), configs_hash)
    assert found is not None
    return found


@pytest.mark.parametrize("chosen", CONFIGS)
def test_a_later_arm_takes_what_the_first_chose(tmp_path: Path, chosen: Config) -> None:
    cache_of(tmp_path / "first").save(chosen, 1000)
    choices = Choices()
    choices.take(str(tmp_path / "first"))
    later = cache_of(tmp_path / "later")
    assert later.read_best({}, CONFIGS) is None
    choices.give(str(tmp_path / "later"))
    assert later.read_best({}, CONFIGS) == chosen


def test_a_choice_from_another_list_is_not_used(tmp_path: Path) -> None:
    cache_of(tmp_path / "first").save(CONFIGS[0], 1000)
    choices = Choices()
    choices.take(str(tmp_path / "first"))
    choices.give(str(tmp_path / "later"))
    assert cache_of(tmp_path / "later", "another list").read_best({}, CONFIGS) is None


def test_the_first_choice_stays_and_a_folder_keeps_its_own(tmp_path: Path) -> None:
    choices = Choices()
    for name, chosen in (("first", CONFIGS[0]), ("second", CONFIGS[1])):
        cache_of(tmp_path / name).save(chosen, 1000)
        choices.take(str(tmp_path / name))
    choices.give(str(tmp_path / "second"))
    choices.give(str(tmp_path / "third"))
    assert cache_of(tmp_path / "second").read_best({}, CONFIGS) == CONFIGS[1]
    assert cache_of(tmp_path / "third").read_best({}, CONFIGS) == CONFIGS[0]
