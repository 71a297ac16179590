"""The command line: thin calls of the package, clear words, and exit codes that a script can trust."""

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ofa_triton import __version__
from ofa_triton.client import DEFAULT_URL
from ofa_triton.errors import OfaTritonError, ServerError

WRONG_REQUEST, SERVER_FAILED = 2, 3

app = typer.Typer(
    help="OFA checkpoints behind NVIDIA Triton.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
notes = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

Out = Annotated[Path, typer.Option(help="Folder of everything that is built.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_OUT = Path("build/out")


def main() -> None:
    """Run the command line; an error of ours becomes one line and an exit code."""
    try:
        app()
    except OfaTritonError as error:
        notes.print(f"error: {error}", style="red", markup=False)
        sys.exit(SERVER_FAILED if isinstance(error, ServerError) else WRONG_REQUEST)
    except OSError as error:
        notes.print(f"error: {error.filename or ''}: {error.strerror or error}", style="red", markup=False)
        sys.exit(WRONG_REQUEST)
    except KeyboardInterrupt:
        sys.exit(130)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"ofa-triton {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def download(
    model_id: Annotated[str, typer.Argument(help="Such as iic/ofa_visual-entailment_snli-ve_large_en.")],
    out: Annotated[Path, typer.Option(help="Folder that gets a folder of the model's name.")] = Path("checkpoints"),
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
) -> None:
    """Fetch a checkpoint from ModelScope's hub."""
    from ofa_triton.download import download_checkpoint

    notes.print(f"[green]done[/green] {download_checkpoint(model_id, out, revision)}")


@app.command()
def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="Directory in the hub's layout.")],
    as_json: Json = False,
) -> None:
    """Say what a checkpoint is, what it can do, and what is wrong with it."""
    from ofa_triton.inspection import describe_checkpoint

    with notes.status("reading the weights"):
        description = describe_checkpoint(checkpoint)
    if as_json:
        typer.echo(json.dumps(description, ensure_ascii=False))
        return
    table = Table(show_header=False, box=None)
    for key, value in description.items():
        table.add_row(key, f"{value:,}" if isinstance(value, int) else str(value))
    Console(highlight=False).print(table)


@app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(help="Directory in the hub's layout.")],
    out: Out = DEFAULT_OUT,
    as_json: Json = False,
) -> None:
    """Write one ONNX file per stage, each compared with PyTorch. A stage that differs stops it."""
    from ofa_triton.checkpoint import checkpoint_from_directory

    try:
        from ofa_triton.export import export_checkpoint
    except ImportError as error:
        raise OfaTritonError(f"export needs {error.name}. Run: pip install 'ofa-triton[export]'") from error
    with notes.status("reading") as status:
        manifest = export_checkpoint(checkpoint_from_directory(checkpoint), out / "onnx", status.update)
    if as_json:
        typer.echo(manifest.model_dump_json())
        return
    table = Table("stage", "weights, MB", "file, MB", "loaded, MB", "largest difference from PyTorch", box=None)
    for name, stage in manifest.stages.items():
        sizes = (stage.bytes, stage.resident_bytes)
        against_weights = (f"{size / 1e6:.1f} ({size / stage.weight_bytes:.2f}x)" for size in sizes)
        table.add_row(name, f"{stage.weight_bytes / 1e6:.1f}", *against_weights, f"{stage.largest_difference:.1e}")
    notes.print(table)
    notes.print(f"[green]exported[/green] {checkpoint} to {out / 'onnx'}")


@app.command()
def engines(
    target: Annotated[str, typer.Option(help="Recipe of build/targets.")] = "cpu",
    out: Out = DEFAULT_OUT,
) -> None:
    """Build what runs on a target, from the exported stages."""
    from ofa_triton.engines import engines_from_export

    with notes.status("building") as status:
        manifest = engines_from_export(out / "onnx", out / "engines", target, status.update)
    stages = ", ".join(f"{name} ({r.engine} {r.precision})" for name, r in manifest.recipe.stages.items())
    notes.print(f"[green]built[/green] {out / 'engines' / target}: {stages}")


@app.command()
def repository(
    target: Annotated[str, typer.Option(help="The target whose engines are taken.")] = "cpu",
    out: Out = DEFAULT_OUT,
) -> None:
    """Write a Triton model repository from the engines."""
    from ofa_triton.repository import repository_from_engines

    models = repository_from_engines(out / "engines" / target, out / "repository")
    notes.print(f"[green]written[/green] {out / 'repository'}: {', '.join(models)}")


@app.command()
def serve(
    out: Out = DEFAULT_OUT,
    http_port: Annotated[int, typer.Option(help="0 takes a free port.", min=0, max=65535)] = 8000,
    grpc_port: Annotated[int, typer.Option(help="0 takes a free port.", min=0, max=65535)] = 8001,
    metrics_port: Annotated[int, typer.Option(help="0 takes a free port.", min=0, max=65535)] = 8002,
    http_address: Annotated[str, typer.Option(help="Address all ports listen on; loopback unless told.")] = "127.0.0.1",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Let all of tritonserver's log through.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON when it is ready.")] = False,
) -> None:
    """Serve the repository with the embedded Triton until Ctrl-C or SIGTERM."""
    from ofa_triton.server import TritonServer

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop_serving)
    server = TritonServer(
        out / "repository",
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        address=http_address,
        log=lambda line: notes.print(line, markup=False, style="dim"),
        verbose=verbose,
    )
    addresses = {"grpc_url": server.grpc_url, "http_url": server.http_url, "metrics_url": server.metrics_url}
    with notes.status("starting Triton"):
        server.start()
    try:
        if as_json:
            typer.echo(json.dumps(addresses | {"pid": server.pid}))
            sys.stdout.flush()
        else:
            notes.print(f"[green]serving[/green] visual_entailment. Ctrl-C stops it.\n  gRPC     {server.grpc_url}")
            notes.print(f"  HTTP     {server.http_url}\n  metrics  {server.metrics_url}")
        status = server.wait()
        raise ServerError(f"tritonserver ended by itself with status {status}. It said last:\n{server.last_lines()}")
    finally:
        server.stop()


def _stop_serving(number: int, frame: object) -> None:
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    notes.print("stopping")
    sys.exit(0)


@app.command()
def ask(
    images: Annotated[
        list[Path], typer.Argument(help="Pictures, or .jsonl files of rows with image, hypothesis and premise.")
    ],
    hypothesis: Annotated[str | None, typer.Option(help="The statement to judge.")] = None,
    premise: Annotated[str | None, typer.Option(help="What is already known about the picture.")] = None,
    url: Annotated[str, typer.Option(help="The server's gRPC address.")] = DEFAULT_URL,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Answer in this process, from the export of this checkpoint.")
    ] = None,
    out: Out = DEFAULT_OUT,
    timeout_s: Annotated[float, typer.Option(help="Longest wait for an answer.", min=0.001)] = 60.0,
    as_json: Json = False,
) -> None:
    """Ask about pictures: does each bear the statement out?"""
    from ofa_triton.asking import ask_all, questions_from_arguments

    questions = questions_from_arguments(images, hypothesis, premise)
    failed: OfaTritonError | None = None
    for question, answer in ask_all(questions, url=url, checkpoint=checkpoint, out=out, timeout_s=timeout_s):
        if isinstance(answer, OfaTritonError):
            failed = answer if failed is None or isinstance(answer, ServerError) else failed
            _print_row({"error": str(answer)}, str(question.image), several=len(questions) > 1, as_json=as_json)
        else:
            _print_row(answer.as_dict(), str(question.image), several=len(questions) > 1, as_json=as_json)
    if failed is not None:
        raise typer.Exit(SERVER_FAILED if isinstance(failed, ServerError) else WRONG_REQUEST)


def _print_row(row: dict[str, Any], image: str, *, several: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"image": image} | row if several else row, ensure_ascii=False))
    elif "error" in row:
        notes.print(f"error: {image}: {row['error']}", style="red", markup=False)
    else:
        scores = "  ".join(f"{label} {score:.4f}" for label, score in row["scores"].items())
        typer.echo(f"{image}: {row['label']} ({row['confidence']:.4f})   {scores}   {row['latency_ms']:.1f} ms")
