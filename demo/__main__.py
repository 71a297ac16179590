"""Ask the real server about the demo's pictures and print what it says: ``make demo``.

Exits with 0 only if every answer is right.
"""

import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ofa_triton.asking import Answer, Question, ask_all
from ofa_triton.errors import OfaTritonError
from ofa_triton.server import TritonServer

DEMO = Path(__file__).parent
PAIRS = DEMO / "pairs.jsonl"
OUT = Path("build/out")


def main() -> int:
    """Start the server, ask every pair, and return the exit status."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    rows = [json.loads(line) for line in PAIRS.read_text().splitlines()]
    questions = [Question(DEMO / row["image"], row["hypothesis"], row.get("premise")) for row in rows]
    start = time.perf_counter()
    with TritonServer(OUT / "repository", log=lambda line: console.print(line, style="dim", markup=False)) as server:
        console.print(f"tritonserver is ready after {time.perf_counter() - start:.1f} s on {server.grpc_url}\n")
        answers = [
            answer for _, answer in ask_all(questions, url=server.grpc_url, checkpoint=None, out=OUT, timeout_s=60)
        ]
    right = [
        not isinstance(answer, OfaTritonError) and answer.label == row["label"]
        for answer, row in zip(answers, rows, strict=True)
    ]
    console.print(_table(rows, answers, right))
    console.print(f"\n{sum(right)} of {len(right)} right.")
    return 0 if all(right) else 1


def _table(rows: list[dict[str, str]], answers: list[Answer], right: list[bool]) -> Table:
    table = Table(
        "picture", "statement (with what is known before)", "answer", "entailment, contradiction, neutral", ""
    )
    for row, answer, good in zip(rows, answers, right, strict=True):
        statement = row["hypothesis"] + (f"\n(known: {row['premise']})" if "premise" in row else "")
        mark = "[green]right[/green]" if good else f"[red]wrong: {row['label']}[/red]"
        if isinstance(answer, OfaTritonError):
            table.add_row(row["image"], statement, "error", str(answer), mark)
        else:
            scores = "  ".join(f"{score:.3f}" for score in answer.scores.values())
            table.add_row(row["image"], statement, answer.label, scores, mark)
    return table


if __name__ == "__main__":
    sys.exit(main())
