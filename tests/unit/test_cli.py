import json
import subprocess
import sys
from pathlib import Path

import pytest

from ofa_triton.asking import ask_all, questions_from_arguments
from ofa_triton.client import Client
from ofa_triton.errors import RequestError
from ofa_triton.results import Entailment
from tests.checkpoints import write_json
from tests.pictures import encoded, noise

OFA = Path(sys.executable).with_name("ofa-triton")
DEAD = "grpc://127.0.0.1:9"


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(OFA), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "picture.png"
    path.write_bytes(encoded(noise()))
    return path


def test_help_names_every_command() -> None:
    text = run("--help").stdout
    for command in ("download", "inspect", "export", "engines", "repository", "serve", "ask"):
        assert command in text


def test_version() -> None:
    assert run("--version").stdout.startswith("ofa-triton 0.")


def test_the_client_needs_no_torch() -> None:
    code = "import sys, ofa_triton.client, ofa_triton.cli; sys.exit('torch' in sys.modules or 'onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["ask", "PICTURE", "--hypothesis", "a", "--url", DEAD], 3, "Is it running? Start it with 'ofa-triton serve'"),
        (["ask", "PICTURE", "--url", DEAD], 2, "--hypothesis is missing"),
        (["ask", "nowhere.png", "--hypothesis", "a", "--url", DEAD], 2, "nowhere.png: IMAGE: the file cannot be read"),
        (["ask", "PICTURE", "--hypothesis", "a", "--url", "http://127.0.0.1:8000"], 2, "grpc://HOST:PORT"),
        (["ask", "PICTURE", "--hypothesis", "a", "--checkpoint", "nowhere"], 2, "Run 'ofa-triton export CHECKPOINT'"),
        (["serve"], 3, "Run 'ofa-triton repository' first"),
        (["engines"], 2, "Run 'ofa-triton export CHECKPOINT' first"),
        (["repository"], 2, "Run 'ofa-triton engines' first"),
        (["export", "nowhere"], 2, "nowhere: does not exist"),
        (["inspect", "."], 2, "config.json: missing"),
        (["download", "nowhere"], 2, "OWNER/NAME"),
    ],
)
def test_errors_are_one_line_with_advice_and_a_status(
    tmp_path: Path, picture: Path, arguments: list[str], status: int, message: str
) -> None:
    result = run(*(picture if a == "PICTURE" else a for a in arguments), cwd=tmp_path)
    assert result.returncode == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_inspect_describes_a_checkpoint(checkpoint_path: Path) -> None:
    description = json.loads(run("inspect", checkpoint_path, "--json").stdout)
    assert description["task"] == "visual-entailment"
    assert description["tower"] == "resnet18"
    assert description["answers"] == {"yes": "entailment", "no": "contradiction", "maybe": "neutral"}
    assert isinstance(description["parameters"], int)
    assert "tower" in run("inspect", checkpoint_path).stdout


def test_ask_in_process(built: Path, checkpoint_path: Path, picture: Path) -> None:
    answer = json.loads(
        run(
            "ask", picture, "--hypothesis", "two birds", "--checkpoint", checkpoint_path, "--out", built, "--json"
        ).stdout
    )
    assert answer.keys() == {"task", "label", "confidence", "scores", "answer", "latency_ms"}
    assert answer["scores"].keys() == {"entailment", "contradiction", "neutral"}
    assert answer["confidence"] == answer["scores"][answer["label"]]


def test_rows_are_answered_in_order_and_a_bad_one_fails_alone(
    built: Path, checkpoint_path: Path, picture: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(picture.read_bytes()[:99])
    rows = [
        {"image": "picture.png", "hypothesis": "a bird"},
        {"image": "broken.png", "hypothesis": "a bird"},
        {"image": "picture.png", "hypothesis": "a bird", "premise": "a dog"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    result = run("ask", tmp_path / "rows.jsonl", "--checkpoint", checkpoint_path, "--out", built, "--json")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 2
    assert ["error" in answer for answer in answers] == [False, True, False]
    assert [Path(answer["image"]).name for answer in answers] == [row["image"] for row in rows]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "a row like"),
        ("[" * 100_000, "a row like"),
        ('{"hypothesis": "a"}', "image"),
        ('["a"]', "a row like"),
        ('{"image": "picture.png"}', "must be texts"),
        ('{"image": 7, "hypothesis": "a"}', "must be texts"),
        ('{"image": "a\\u0000.png", "hypothesis": "a"}', "IMAGE: the file cannot be read"),
        ('{"image": "\\ud800.png", "hypothesis": "a"}', "IMAGE: the file cannot be read"),
        ('{"image": "picture.png", "hypothesis": "\\ud800 two"}', "HYPOTHESIS: byte 0"),
    ],
)
def test_a_malformed_row_fails_alone(
    built: Path, checkpoint_path: Path, picture: Path, tmp_path: Path, line: str, message: str
) -> None:
    good = json.dumps({"image": picture.name, "hypothesis": "a"})
    file = tmp_path / "rows.jsonl"
    file.write_text(f"\ufeff{good}\n{line}\n{good}\n")
    rows = questions_from_arguments([file], None, None)
    answers = [a for _, a in ask_all(rows, url="", checkpoint=checkpoint_path, out=built, timeout_s=9)]
    assert isinstance(answers[0], Entailment)
    assert isinstance(answers[2], Entailment)
    assert message in str(answers[1])


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    with pytest.raises(RequestError, match="no rows"):
        questions_from_arguments([tmp_path / "rows.jsonl"], None, None)


def test_an_export_of_another_checkpoint_is_refused(built: Path, checkpoint_path: Path, tmp_path: Path) -> None:
    import shutil

    other = Path(shutil.copytree(checkpoint_path, tmp_path / "other"))
    write_json(other / "ans2label.json", {"no": 0, "yes": 1})
    result = run("ask", "x.png", "--hypothesis", "a", "--checkpoint", other, "--out", built)
    assert result.returncode == 2
    assert "was made from" in result.stderr


@pytest.mark.parametrize(
    "url", ["http://h:1", "localhost", "grpc://localhost", "", "grpc://h:abc", "grpc://:1", "grpc://h:99999"]
)
def test_addresses_without_port_or_of_another_kind_are_refused(url: str) -> None:
    with pytest.raises(RequestError, match="grpc://HOST:PORT"):
        Client(url)
