#!/usr/bin/env python3
"""usage: openai_batch.py BUILD_DIR [MODEL]
Are requests of OpenAI's own client answered by `aprrun batch --format openai` as that client reads answers? For machines that have openai.

The client makes each request; instead of sending it, it is written as a line of a batch file. aprrun answers the file. The client then makes the
same requests again, receives the answers of the batch, and validates them strictly: types, required fields and the error that it raises.
No field may be unknown to the client's types, but for the one of a refused url. MODEL: a model with a chat template (the bundled one)."""
import json, os, subprocess, sys, tempfile

import openai
try:
    import httpx2 as httpx  # of openai 3
except ImportError:
    import httpx
from openai.types import Completion
from openai.types.chat import ChatCompletion
from openai.types.shared import ErrorObject

build = os.path.abspath(sys.argv[1])
model = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "data", "tiny-qwen2"))
USER = {"role": "user", "content": "Recite Ge1:1"}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "a verse", "parameters": {"type": "object", "properties": {"verse": {"type": "string"}}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{\"verse\": \"Ge1:1\"}"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}


def chat(**more):
    more = {"messages": [USER], "model": "m", "max_tokens": 20, **more}
    more = {key: value for key, value in more.items() if value != "leave out"}
    return lambda client: client.chat.completions.create(**more)


def text(**more):
    more = {"prompt": "In the beginning", "model": "m", "max_tokens": 4, **more}
    return lambda client: client.completions.create(**more)


ANSWERED = {  # name: the request
    "plain": chat(),
    "parts": chat(messages=[{"role": "user", "content": [{"type": "text", "text": "Recite Ge1:1"}]}]),
    "two parts": chat(messages=[{"role": "user", "content": [{"type": "text", "text": "Recite"}, {"type": "text", "text": "Ge1:1"}]}]),
    "system": chat(messages=[{"role": "system", "content": "Answer."}, USER]),
    "developer": chat(messages=[{"role": "developer", "content": "Answer."}, USER]),
    "conversation": chat(messages=[USER, {"role": "assistant", "content": "In the beginning"}, USER]),
    "tools": chat(tools=[TOOL]),
    "tools, auto": chat(tools=[TOOL], tool_choice="auto", parallel_tool_calls=False),
    "tools, none": chat(tools=[TOOL], tool_choice="none"),
    "no tools": chat(tools=[], tool_choice="none"),
    "tool called": chat(messages=[USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "a verse"}]),
    "n of 1": chat(n=1, stream=False),
    "seed": chat(seed=7, temperature=0.9, top_p=0.8),
    "the same seed": chat(seed=7, temperature=0.9, top_p=0.8),
    "stop": chat(stop="God"),
    "stops": chat(stop=["heaven", "God"]),
    "max_completion_tokens": chat(max_completion_tokens=3, max_tokens="leave out"),
    "max_tokens": chat(max_tokens=3),
    "no limit": chat(max_tokens="leave out"),
    "response_format": chat(response_format={"type": "text"}),
    "logprobs": chat(logprobs=False, top_logprobs=0),
    "nulls": chat(temperature=None, top_p=None, stop=None, seed=None, n=None, logit_bias=None, user=None, max_tokens=None, tools=None,
                  tool_choice=None, response_format=None, presence_penalty=None, metadata=None, stream=None, logprobs=None),
    "nothing asked": chat(presence_penalty=0.0, frequency_penalty=0, logit_bias={}, user="u", metadata={"a": "b"}, store=True, service_tier="auto",
                          modalities=["text"], prompt_cache_key="k", prompt_cache_retention="24h", safety_identifier="s", verbosity="medium"),
    "text": text(),
    "text, a list": text(prompt=["In the beginning"]),
    "text, everything": text(best_of=1, echo=False, n=1, logprobs=None, suffix=None, stream=False, stop=["\n"], seed=1, temperature=0.5, user="u"),
    "text, stop": text(stop=" the"),
}
REFUSED = {  # name: the request and the field that the error names
    "n of 2": (chat(n=2), "n"),
    "stream": (chat(stream=True), "stream"),
    "picture": (chat(messages=[{"role": "user", "content": [{"type": "text", "text": "What is this?"}, PICTURE]}]), "messages"),
    "schema": (chat(response_format=SCHEMA), "response_format"),
    "wanted logprobs": (chat(logprobs=True), "logprobs"),
    "tool required": (chat(tools=[TOOL], tool_choice="required"), "tool_choice"),
    "sound": (chat(modalities=["text", "audio"]), "modalities"),
    "penalty": (chat(frequency_penalty=1.0), "frequency_penalty"),
    "temperature": (chat(temperature=-1), "temperature"),
    "no message": (chat(messages=[]), "messages"),
    "two prompts": (text(prompt=["a", "b"]), "prompt"),
    "embeddings": (lambda client: client.embeddings.create(model="m", input="x"), "url"),
    "responses": (lambda client: client.responses.create(model="m", input="x"), "url"),
}
bad = []


def judge(name, holds, what):
    if not holds:
        bad.append(f"{name}: {what}")


def client_of(handler, strict):
    return openai.OpenAI(api_key="-", base_url="http://localhost/v1", max_retries=0, _strict_response_validation=strict,
                         http_client=httpx.Client(transport=httpx.MockTransport(handler)))


def line_of(name, make):
    """The line of a batch file for what the client sends."""
    sent = []

    def keep(request):
        sent.append(request)
        return httpx.Response(400, json={"error": {"message": "not sent"}})
    try:
        make(client_of(keep, False))
    except openai.BadRequestError:
        pass
    return {"custom_id": name, "method": sent[0].method, "url": sent[0].url.path, "body": json.loads(sent[0].content)}


def unknown(it, at=""):
    """Fields that the client's types do not have."""
    found = [f"{at}.{key}" for key in (it.model_extra or {})]
    for key in type(it).model_fields:
        value = getattr(it, key)
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "model_fields_set"):
                found += unknown(one, f"{at}.{key}")
    return found


def received(name, make, line):
    """What the client makes of the answer."""
    response = line["response"]
    return make(client_of(lambda request: httpx.Response(response["status_code"], json=response["body"]), True))


def judge_answer(name, make, line, answers):
    judge(name, line["response"]["status_code"] == 200, f"refused: {line['error']}")
    if line["response"]["status_code"] != 200:
        return
    answer = received(name, make, line)
    is_text = name.startswith("text")
    (Completion if is_text else ChatCompletion).model_validate(line["response"]["body"], strict=True)
    judge(name, isinstance(answer, Completion if is_text else ChatCompletion), f"the client returns a {type(answer).__name__}")
    judge(name, not unknown(answer), f"fields that the client does not know: {unknown(answer)}")
    judge(name, line["error"] is None, "an answer has an error")
    judge(name, answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, "tokens do not add up")
    judge(name, len(answer.choices) == 1 and answer.choices[0].index == 0 and answer.model == "m" and answer.created > 1.7e9, "choices, model or time")
    answers[name] = (answer.choices[0].text if is_text else answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage.completion_tokens)


def judge_refusal(name, make, field, line):
    judge(name, line["response"]["status_code"] == 400, f"status {line['response']['status_code']}")
    try:
        received(name, make, line)
        judge(name, False, "the client raises no error")
    except openai.BadRequestError as e:
        error = ErrorObject.model_validate(line["response"]["body"]["error"], strict=True)
        judge(name, e.type == "invalid_request_error" and e.param == field, f"type {e.type}, param {e.param} instead of {field}")
        judge(name, error.message and error.message in str(e), "the message")
        judge(name, set(error.model_extra or {}) <= {"url"}, f"fields that the client does not know: {error.model_extra}")
        judge(name, line["error"] and line["error"]["message"] == error.message, "the line's error is another")


def compare(answers):
    """What answers have to do with one another."""
    plain = answers["plain"]
    for name in ("parts", "n of 1", "response_format", "logprobs", "nothing asked", "no limit", "no tools", "tools, none"):
        judge(name, answers.get(name) == plain, f"{answers.get(name)} is not {plain}")
    judge("seed", answers["seed"] == answers["the same seed"], "another answer with the same seed")
    judge("developer", answers["developer"] == answers["system"], "another answer than to a system message")
    judge("text, a list", answers["text, a list"] == answers["text"], "another answer than to the string")
    for name, stop in (("stop", "God"), ("stops", "God"), ("text, stop", " the")):
        whole = answers["text" if name.startswith("text") else "plain"][0]
        judge(name, answers[name][0] == whole.split(stop)[0] and (stop not in whole or answers[name][1] == "stop"), f"{answers[name]} of {whole!r}")
    for name in ("max_tokens", "max_completion_tokens"):
        judge(name, answers[name][1:] == ("length", 3) and plain[0].startswith(answers[name][0]), str(answers[name]))


with tempfile.TemporaryDirectory() as folder:
    requests = {**ANSWERED, **{name: make for name, (make, _) in REFUSED.items()}}
    with open(os.path.join(folder, "in.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line_of(name, make)) + "\n" for name, make in requests.items())
    out = os.path.join(folder, "out.jsonl")
    done = subprocess.run([os.path.join(build, "aprrun"), "batch", "--format", "openai", "-q", model, f.name, "-o", out, "--ctx", "512"],
                          capture_output=True, text=True)
    judge("exit code", done.returncode == 1, f"{done.returncode}: {done.stderr}")
    lines = {line["custom_id"]: line for line in map(json.loads, open(out, encoding="utf-8"))}
    judge("lines", set(lines) == set(requests), f"missing: {set(requests) - set(lines)}")
    for name, line in lines.items():
        judge(name, set(line) == {"id", "custom_id", "response", "error"} and set(line["response"]) == {"status_code", "request_id", "body"}, "the line's fields")
    answers = {}
    for name, make in ANSWERED.items():
        judge_answer(name, make, lines[name], answers)
    for name, (make, field) in REFUSED.items():
        judge_refusal(name, make, field, lines[name])
    if len(answers) == len(ANSWERED):
        compare(answers)
for sentence in bad:
    print(f"WRONG {sentence}")
print(f"openai {openai.__version__}: {len(ANSWERED)} requests answered, {len(REFUSED)} refused, {len(bad)} faults")
sys.exit(len(bad) > 0)
