import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ofa_triton.checkpoint import checkpoint_from_directory
from ofa_triton.errors import CheckpointError
from ofa_triton.ofa.weights import model_from_tensors, tensors_from_file
from tests.checkpoints import write_json


@pytest.fixture
def copy(checkpoint_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_path, tmp_path / "copy"))


def edit(name: str, **changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = json.loads((path / name).read_text())
        section = data["model"] if name == "configuration.json" and "task" not in changes else data
        section.update(changes)
        for key in [key for key, value in section.items() if value is ...]:
            del section[key]
        write_json(path / name, data)

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_text(text) and None


def test_a_whole_directory_is_read(checkpoint_path: Path) -> None:
    checkpoint = checkpoint_from_directory(checkpoint_path)
    assert checkpoint.answers == ("yes", "no", "maybe")
    assert checkpoint.labels == ("entailment", "contradiction", "neutral")
    assert checkpoint.grid == (4, 4)
    assert checkpoint.answer_ids() == [4420, 117, 2085]
    assert checkpoint.geometry.text.max == 48


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("config.json"), r"config\.json: missing.*fairseq"),
        (remove("configuration.json"), r"configuration\.json: missing.*Hugging Face"),
        (remove("vocab.json"), r"vocab\.json: missing"),
        (remove("merges.txt"), r"merges\.txt: missing"),
        (remove("pytorch_model.bin"), r"no weights; model\.safetensors or pytorch_model\.bin"),
        (remove("ans2label.json"), r"ans2label\.json: missing"),
        (write("config.json", "{"), r"config\.json: not JSON"),
        (write("configuration.json", "[]"), r"configuration\.json: holds a list"),
        (edit("config.json", model_type="bert"), "model_type is 'bert'"),
        (edit("config.json", scale_embedding=True), "not supported yet: scale_embedding=True"),
        (edit("config.json", use_ofasys=True, vit_type="vit_tiny"), "vit_type: .*unknown tower 'vit_tiny'"),
        (edit("config.json", resnet_type="resnet7"), "resnet_type: .*unknown tower"),
        (edit("config.json", encoder_attention_heads=5), "not a multiple of 5"),
        (edit("config.json", d_model="wide"), "d_model: Input should be a valid integer"),
        (edit("config.json", vocab_size=30325), "vocab.json makes 59457 tokens"),
        (edit("configuration.json", task="image-captioning"), "the task is 'image-captioning'; visual-entailment"),
        (edit("configuration.json", type="mplug"), "model.type: Input should be 'ofa'"),
        (edit("configuration.json", language="zh"), "model.language: Input should be 'en'"),
        (edit("configuration.json", gen_type="generation"), "gen_type 'generation'"),
        (edit("configuration.json", answer2label=...), "model.answer2label is missing"),
        (edit("configuration.json", answer2label="../x.json"), "a file beside it is needed"),
        (edit("configuration.json", patch_image_size=688), "43 x 43 grid"),
        (edit("configuration.json", prompt="no gap"), "has 0 gaps"),
        (edit("configuration.json", prompt="a {} {} {}"), "has 3 gaps"),
        (write("ans2label.json", '{"yes": 0}'), "two or more"),
        (write("ans2label.json", '{"yes": 0, " ": 1}'), "two or more that are not blank"),
        (write("ans2label.json", '{"yes": 0, "a crowd": 1}'), r"\['a crowd'\] take more than one token"),
        (write("ans2label.json", '{"yes": 0, "neutral": 1, "maybe": 2}'), "mean the same"),
        (write("ans2label.json", '{"yes": 0, "no": 1, "no": 2}'), "a key stands twice"),
        (write("config.json", "[" * 100_000), r"config\.json: not JSON"),
        (edit("config.json", d_model=0), "d_model: Input should be greater than 0"),
        (edit("config.json", encoder_layers=10**30), "encoder_layers: Input should be less"),
        (edit("config.json", pad_token_id=0), "pad_token_id: Input should be 1"),
    ],
)
def test_a_damaged_directory_is_described(copy: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(copy)
    with pytest.raises(CheckpointError, match=message):
        checkpoint_from_directory(copy)


@pytest.mark.parametrize("path", ["nowhere", "file"])
def test_a_path_that_is_no_directory(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"does not exist|is a file"):
        checkpoint_from_directory(tmp_path / path)


def test_own_prompt_serves_the_form_it_has_gaps_for(copy: Path) -> None:
    edit("configuration.json", prompt=" is it {}?")(copy)
    settings = checkpoint_from_directory(copy).preprocess_settings
    assert settings.entailment_prompt == " is it {}?"
    assert settings.entailment_premise_prompt.count("{}") == 2


def test_fingerprint_follows_every_file(copy: Path) -> None:
    before = checkpoint_from_directory(copy).fingerprint
    edit("configuration.json", max_src_length=41)(copy)
    assert checkpoint_from_directory(copy).fingerprint != before


def load(path: Path) -> None:
    checkpoint = checkpoint_from_directory(path)
    model_from_tensors(checkpoint.config, tensors_from_file(checkpoint.weights), checkpoint.weights)


def rewrite(path: Path, change: Callable[[dict], object]) -> None:
    file = path / "pytorch_model.bin"
    tensors = torch.load(file, weights_only=True)
    change(tensors)
    torch.save(tensors, file)


NORM = "encoder.layers.0.self_attn_mid_layer_norm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), f"1 missing: {NORM}"),
        (lambda t: t.update({"encoder.extra": t[NORM]}), "1 unexpected: encoder.extra"),
        (lambda t: t.update({NORM: t[NORM][:7]}), rf"1 misshapen: {NORM} is \[7\], config.json makes it \[32\]"),
        (lambda t: t[NORM].fill_(float("nan")), f"1 not finite: {NORM}"),
        (lambda t: [t.pop(k) for k in list(t) if k.startswith("decoder.layers.1")], r"\d\d missing: .* and \d+ more"),
        (lambda t: t.update({NORM: t[NORM].to(torch.int8)}), f"1 not plain .*{NORM} is torch.int8"),
        (lambda t: t.update({NORM: t[NORM].to(torch.float8_e4m3fn)}), f"1 not plain .*{NORM} is torch.float8"),
        (lambda t: t.update({NORM: t[NORM].to_sparse()}), f"1 not plain .*{NORM} is torch.sparse"),
        (lambda t: t.update({7: t[NORM]}), "not a table of tensors"),
        (
            lambda t: t.update({"decoder.output_projection.weight": t["encoder.embed_tokens.weight"] + 1}),
            "differ from encoder.embed_tokens.weight",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(copy: Path, change: Callable[[dict], object], message: str) -> None:
    rewrite(copy, change)
    with pytest.raises(CheckpointError, match=message):
        load(copy)


def test_derived_buffers_are_accepted(copy: Path) -> None:
    buffers = {"encoder.image_rp_bucket": torch.zeros(3, 3, dtype=torch.int64), "temp": torch.zeros(())}
    rewrite(copy, lambda tensors: tensors.update(buffers))
    load(copy)


def test_half_precision_weights_become_fp32(copy: Path) -> None:
    rewrite(copy, lambda tensors: tensors.update({name: value.half() for name, value in tensors.items()}))
    load(copy)


def test_safetensors_are_preferred(copy: Path) -> None:
    tensors = torch.load(copy / "pytorch_model.bin", weights_only=True)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, copy / "model.safetensors")
    (copy / "pytorch_model.bin").write_bytes(b"nonsense")
    load(copy)


@pytest.mark.parametrize("keep", [0, 100, 100_000])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_cut_weights_are_described(copy: Path, name: str, keep: int) -> None:
    (copy / name).write_bytes((copy / "pytorch_model.bin").read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="cannot be read as weights"):
        load(copy)


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("legacy", [True, False])
def test_no_pickle_is_executed(copy: Path, tmp_path: Path, legacy: bool) -> None:
    trace = tmp_path / "executed"
    if legacy:
        (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(trace)))
    else:
        torch.save({"weight": Malicious(trace)}, copy / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="never executed"):
        load(copy)
    assert not trace.exists()


@pytest.mark.parametrize("text", ["<html>no such model</html>", "version https://git-lfs.github.com/spec/v1"])
def test_what_came_instead_of_weights_is_shown(copy: Path, text: str) -> None:
    (copy / "pytorch_model.bin").write_text(text)
    with pytest.raises(CheckpointError, match=f"beginning b'{text[:12]}") as caught:
        load(copy)
    assert "weights_only" not in str(caught.value)


def test_a_list_instead_of_tensors(copy: Path) -> None:
    torch.save({"model": {"a": torch.zeros(1)}}, copy / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="fairseq"):
        load(copy)
