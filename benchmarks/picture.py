"""The README's picture from one target's record: `python benchmarks/picture.py`. Same record, same bytes."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.records import FOLDER, Record, load
from kernelopt_bot.report.charts import Chart, gain_chart
from kernelopt_bot.search.result import Comparison, Noise

NAME = "max_pooling"
RECORD = FOLDER / f"optimize_{NAME}_h200_2026-12-01.json"
PICTURES = FOLDER.parent.parent / "docs" / "pictures"


def chart(record: Record) -> Chart:
    """Raises ValueError if the record has no confirmed figure."""
    against = [Comparison(**b["gain"]) for b in record.report["baselines"] if b["gain"]]
    (noise,) = ({k: v for k, v in found.items() if k != "target"} for found in record.report["noise"])
    made = gain_chart(against, Comparison(**record.target["headline"]), Noise(**noise))
    if made is None:
        raise ValueError("the record has no comparison of the headline's kind")
    return made


def main() -> None:
    made = chart(load(RECORD))
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{NAME}-light.svg").write_bytes(made.light)
    (PICTURES / f"{NAME}-dark.svg").write_bytes(made.dark)
    print(made.alternative)


if __name__ == "__main__":
    main()
