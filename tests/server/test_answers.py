"""The server's answers are those of the same stages in this process."""

import base64
import json
import random
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from ofa_triton.client import Client
from ofa_triton.errors import RequestError
from ofa_triton.pipeline import Pipeline
from ofa_triton.results import Entailment
from ofa_triton.server import TritonServer
from tests.pictures import encoded, noise

PICTURES = [encoded(noise(40 + 30 * number, 120 - 20 * number, seed=number)) for number in range(5)]
WORDS = ["a bird", "two dogs run", "the red square is left of the large blue circle near the end of the road", "no"]


def close(found: Entailment, expected: Entailment) -> bool:
    return (found.label, found.answer) == (expected.label, expected.answer) and np.allclose(
        list(found.scores.values()), list(expected.scores.values()), atol=1e-5
    )


@pytest.mark.parametrize("picture", range(len(PICTURES)))
@pytest.mark.parametrize("premise", [None, "a dog sleeps"])
def test_single(client: Client, pipeline: Pipeline, picture: int, premise: str | None) -> None:
    premises = None if premise is None else [premise]
    (found,) = client.entailment([PICTURES[picture]], ["a bird"], premises)
    (expected,) = pipeline.entailment([PICTURES[picture]], ["a bird"], premises)
    assert close(found, expected)
    assert sum(found.scores.values()) == pytest.approx(1, abs=1e-5)
    assert found.confidence == max(found.scores.values())


def test_batch_of_unequal_texts(client: Client, pipeline: Pipeline) -> None:
    images, texts = [PICTURES[i % 5] for i in range(8)], [WORDS[i % 4] for i in range(8)]
    together = client.entailment(images, texts)
    alone = [pipeline.entailment([image], [text])[0] for image, text in zip(images, texts, strict=True)]
    assert all(map(close, together, alone))


def test_concurrent_requests_get_their_own_answers(client: Client, pipeline: Pipeline) -> None:
    choose = random.Random(0)
    questions = [(choose.randrange(5), choose.choice(WORDS), choose.choice([None, "a cat"])) for _ in range(60)]

    def ask(question: tuple[int, str, str | None]) -> Entailment:
        picture, text, premise = question
        return client.entailment([PICTURES[picture]], [text], None if premise is None else [premise])[0]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, questions))
    expected = {
        question: pipeline.entailment(
            [PICTURES[question[0]]], [question[1]], None if question[2] is None else [question[2]]
        )[0]
        for question in set(questions)
    }
    assert all(close(answer, expected[question]) for question, answer in zip(questions, answers, strict=True))


def test_requests_share_batches_under_load(server: TritonServer, client: Client) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: client.entailment([PICTURES[number % 5]], [WORDS[number % 2]]), range(64)))
    with triton.InferenceServerClient(server.grpc_url.removeprefix("grpc://")) as raw:
        (statistics,) = raw.get_inference_statistics("text_encoder").model_stats
    assert statistics.execution_count < statistics.inference_count


def test_bad_request_among_good_ones_fails_alone(client: Client, pipeline: Pipeline) -> None:
    def ask(number: int) -> Entailment | RequestError:
        try:
            return client.entailment([PICTURES[0] if number != 3 else PICTURES[0][:300]], ["a bird"])[0]
        except RequestError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    (expected,) = pipeline.entailment([PICTURES[0]], ["a bird"])
    assert isinstance(answers[3], RequestError)
    assert all(close(answer, expected) for number, answer in enumerate(answers) if number != 3)


def test_a_stage_s_refusal_does_not_reach_batch_mates(server: TritonServer, client: Client) -> None:
    def poison(number: int) -> str:
        ids = triton.InferInput("input_ids", [1, 16], "INT32")
        ids.set_data_from_numpy(np.full((1, 16), 99_999_999, np.int32))
        embeds = triton.InferInput("image_embeds", [1, 16, 32], "FP32")
        embeds.set_data_from_numpy(np.zeros((1, 16, 32), np.float32))
        with triton.InferenceServerClient(server.grpc_url.removeprefix("grpc://")) as raw:
            try:
                raw.infer("text_encoder", [embeds, ids])
            except InferenceServerException as error:
                return str(error)
        return "answered"

    with ThreadPoolExecutor(16) as pool:
        refused = [pool.submit(poison, number) for number in range(60)]
        answered = [pool.submit(client.entailment, [PICTURES[0]], ["a bird"]) for _ in range(60)]
        assert all(future.result()[0].label for future in answered)
        assert all("INVALID_ARGUMENT" in future.result() for future in refused)


@pytest.mark.parametrize(
    ("image", "text", "message"),
    [
        (b"", "a", "IMAGE: 0 bytes"),
        (PICTURES[0][:500], "a", "IMAGE: the PNG file is damaged or cut short"),
        (b"no picture, at all", "a", "IMAGE: what was sent is not a picture"),
        (PICTURES[0], "", "HYPOTHESIS: the text is empty"),
        (PICTURES[0], "\udcff", "HYPOTHESIS: byte 0"),
        (encoded(noise(1, 1).resize((12_000, 12_000))), "a", "IMAGE: .*at most 89478485 pixels"),
    ],
)
def test_the_same_bad_request_twice_is_twice_the_same_error(
    client: Client, pipeline: Pipeline, image: bytes, text: str, message: str
) -> None:
    for answerer in (client, client, pipeline):
        with pytest.raises(RequestError, match=f"^{message}"):
            answerer.entailment([image], [text])
    assert client.entailment([PICTURES[1]], ["a bird"])


def test_unequal_columns_are_named_by_the_client(client: Client) -> None:
    with pytest.raises(RequestError, match="'IMAGE': 2, 'HYPOTHESIS': 1"):
        client.entailment(PICTURES[:2], ["a"])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (([1], [1, 1]), r"unexpected shape for input 'IMAGE'.*Expected \[-1,1\], got \[1\]"),
        (([2, 1], [1, 1]), "input 'IMAGE' batch size does not match"),
        (([9, 1], [9, 1]), "batch-size must be <= 8"),
    ],
)
def test_wrong_shapes_are_named_by_the_server(
    server: TritonServer, shapes: tuple[list[int], list[int]], message: str
) -> None:
    columns = []
    for name, shape, value in zip(("IMAGE", "HYPOTHESIS"), shapes, (PICTURES[0], b"a"), strict=True):
        columns.append(triton.InferInput(name, shape, "BYTES"))
        columns[-1].set_data_from_numpy(np.full(shape, value, dtype=object))
    with (
        triton.InferenceServerClient(server.grpc_url.removeprefix("grpc://")) as raw,
        pytest.raises(Exception, match=message),
    ):
        raw.infer("visual_entailment", columns)


def http(server: TritonServer, image: str, text: str) -> dict:
    def column(name: str, value: str) -> dict:
        return {"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [value]}

    body = {
        "inputs": [column("IMAGE", image), column("HYPOTHESIS", text)],
        "outputs": [{"name": "SCORES", "parameters": {"classification": 3}}],
    }
    request = urllib.request.Request(
        f"{server.http_url}/v2/models/visual_entailment/infer", json.dumps(body).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
@pytest.mark.parametrize("padding", [True, False])
def test_http_with_base64_gives_labels(server: TritonServer, client: Client, prefix: str, padding: bool) -> None:
    text = base64.b64encode(PICTURES[2]).decode()
    answer = http(server, prefix + (text if padding else text.rstrip("=")), "a bird")
    (output,) = answer["outputs"]
    score, _, label = output["data"][0].split(":")
    (expected,) = client.entailment([PICTURES[2]], ["a bird"])
    assert label == expected.label
    assert float(score) == pytest.approx(expected.confidence, abs=1e-5)


def test_http_error_names_the_field(server: TritonServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        http(server, "AAAA", "a bird")
    assert caught.value.code == 400
    assert "IMAGE: what was sent is base64 text, but not of a picture" in json.load(caught.value)["error"]


@pytest.mark.parametrize("path", ["repository/index", "repository/models/fusion_head/unload", "logging"])
def test_management_interfaces_are_closed(server: TritonServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"{server.http_url}/v2/{path}", b"{}", method="POST"), timeout=9)
    assert caught.value.code in (400, 403)
    assert "restricted" in json.load(caught.value)["error"]


def test_image_whose_last_bytes_are_zero_arrives_whole(client: Client, pipeline: Pipeline) -> None:
    image = encoded(noise(9, 9), "BMP")[:-3] + b"\0\0\0"
    assert close(client.entailment([image], ["a"])[0], pipeline.entailment([image], ["a"])[0])
