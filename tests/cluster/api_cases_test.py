#!/usr/bin/env python3
"""Request validation, and public bugs of other servers, against a gateway (see api_target.py).

tests/golden/api_cases.jsonl holds the requests with the answers they must get; tests/golden/api_manifest.json lists every
known case as run or as not supported yet, with the reason.
"""
import concurrent.futures
import json
import pathlib
import re
import socket
import unittest

import api_target

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHARED = SOURCE.parent / "shared" / "data" / "api"


def setUpModule():
    global target
    target = api_target.Target()


def tearDownModule():
    target.close()


def body_of(case):
    """The bytes to send. Cases that generate are kept short: they are about being accepted."""
    if "raw_body" in case:
        raw = case["raw_body"]
        if raw.startswith("hex:"):
            return bytes.fromhex(raw[4:]).replace(b"$MODEL", target.model.encode())
        if raw.startswith("$DEEP:"):
            deep = '{"a":' * 5000 + "1" + "}" * 5000
            base = {"model": target.model, "prompt": "hi"} if case["api"] == "completions" else target.chat()
            return json.dumps(base)[:-1] + f', "metadata": {deep}}}'
        return raw.replace("$MODEL", target.model)
    if case.get("body") is None:
        return None
    body = json.loads(json.dumps(case["body"]).replace("$MODEL", target.model))
    long_text = "word " * (2 * target.context)
    body = json.loads(json.dumps(body).replace('"$LONG:2*ctx"', json.dumps(long_text)))
    if case["expect"]["status"] == 200 and "max_tokens" not in body and "max_completion_tokens" not in body:
        body["max_tokens"] = 4
    if body.get("max_tokens") == 10000000:
        body["stop"] = list("etaoinsrhl\n.,")  # ends soon whatever the model says
    return body


def headers_of(case):
    headers = target.headers()
    for name, value in (case.get("headers") or {}).items():
        headers.pop(name.title(), None)
        if value is not None:
            headers[name.title()] = value.replace("$KEY", target.key)
    return headers


def check_error(test, expect, text):
    error = json.loads(text)["error"]
    test.assertEqual(set(error), {"message", "type", "param", "code"})
    test.assertEqual(error["type"], expect.get("error_type", error["type"]))
    test.assertTrue(error["message"])
    test.assertLess(len(text), 4096)
    if expect.get("param"):
        test.assertTrue((error["param"] or "").startswith(expect["param"]), error)
    if expect.get("code"):
        test.assertEqual(error["code"], expect["code"])


class ValidationCases(unittest.TestCase):
    def test_every_case(self):
        for case in api_target.load_cases():
            if ".auth_" in case["id"] and not target.key:
                continue
            with self.subTest(case["id"]):
                status, headers, text = target.request(case["method"], case["path"], body_of(case), headers_of(case))
                self.assertEqual(status, case["expect"]["status"], text[:500])
                self.assertTrue(headers["x-request-id"])
                if status == 200:
                    json.loads(text)
                else:
                    check_error(self, case["expect"], text)


class Manifest(unittest.TestCase):
    def test_run_cases_are_here_and_tests_exist(self):
        manifest = api_target.load_manifest()
        here = {case["id"] for case in api_target.load_cases()}
        self.assertEqual({i for i, state in manifest["validation"].items() if state == "run"}, here)
        for section in ("bugs", "streams"):
            for name, state in manifest[section].items():
                for place in state.get("run", []):
                    path, test = place.split("#")
                    self.assertIn(test, (SOURCE / path).read_text(), f"{name}: {place}")

    @unittest.skipUnless(SHARED.is_dir(), "the case collection is not on this machine")
    def test_every_known_case_is_listed(self):
        manifest = api_target.load_manifest()

        def ids(name):
            return {json.loads(line)["id"] for line in (SHARED / name).read_text().splitlines()}

        self.assertEqual(set(manifest["validation"]), ids("validation_cases.jsonl"))
        self.assertEqual(set(manifest["bugs"]), ids("bug_cases.jsonl"))
        self.assertEqual(set(manifest["streams"]), {p.stem for p in (SHARED / "sse_golden").glob("*.sse")})


class Bugs(unittest.TestCase):
    """Named after the cases of the manifest."""

    def refused(self, status, param, code=None, path="/v1/chat/completions", **fields):
        body = target.chat(**fields)
        if path == "/v1/completions":
            body = {"model": target.model, "prompt": "hi", **fields}
        got, _, text = target.request("POST", path, body)
        self.assertEqual(got, status, text[:500])
        check_error(self, {"param": param, "code": code}, text)

    def test_B003_B004_B013_B014_chunks_of_a_stream(self):
        chunks, text, _ = target.stream(target.chat(stream_options={"include_usage": True}))
        choices = [c["choices"][0] for c in chunks if c["choices"]]
        self.assertTrue(text.endswith("data: [DONE]\n\n"))
        self.assertEqual([c["finish_reason"] for c in choices[:-1]], [None] * (len(choices) - 1))
        self.assertIn(choices[-1]["finish_reason"], ("stop", "length"))
        self.assertEqual(choices[-1]["delta"], {})
        self.assertEqual(choices[0]["delta"], {"role": "assistant", "content": ""})
        self.assertTrue(all("role" not in c["delta"] for c in choices[1:]))
        self.assertEqual(len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}), 1)
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[0]["object"], "chat.completion.chunk")

    def test_B005_usage_only_when_asked_for(self):
        for fields in ({}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}):
            chunks, _, _ = target.stream(target.chat(**fields))
            self.assertTrue(all("usage" not in c for c in chunks))
        chunks, _, _ = target.stream(target.chat(stream_options={"include_usage": True}))
        self.assertTrue(all(c["usage"] is None for c in chunks[:-1]))
        usage = chunks[-1]["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_B006_failures_before_the_first_token_are_no_streams(self):
        long_chat = target.chat(stream=True, messages=[{"role": "user", "content": "word " * (2 * target.context)}])
        status, headers, text = target.request("POST", "/v1/chat/completions", long_chat)
        self.assertEqual((status, headers["content-type"]), (400, "application/json"))
        check_error(self, {"code": "context_length_exceeded", "param": "messages"}, text)

    def test_B010_headers_for_proxies(self):
        _, _, headers = target.stream(target.chat())
        self.assertEqual(headers["content-type"], "text/event-stream; charset=utf-8")
        self.assertEqual(headers["cache-control"], "no-cache")
        self.assertEqual(headers["x-accel-buffering"], "no")
        self.assertIsNone(headers["content-length"])
        self.assertTrue(headers["x-request-id"])

    def test_B011_clients_that_leave_disturb_nobody(self):
        body = json.dumps(target.chat(stream=True, max_tokens=500)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.key}\r\n"
        for _ in range(100):  # more than the stub takes at once: those that left must be gone
            with socket.create_connection((target.host, target.port), timeout=60) as connection:
                connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200"))
        target.json("POST", "/v1/chat/completions", target.chat())

    def test_B012_no_empty_deltas(self):
        chunks, _, _ = target.stream(target.chat(stop=["\n\n\n", "zzzz"], max_tokens=30))
        for chunk in chunks[1:-1]:
            self.assertNotEqual(chunk["choices"][0]["delta"].get("content", "x"), "")

    def test_B015_B016_stops_in_streams_and_whole_answers(self):
        plain = target.json("POST", "/v1/chat/completions", target.chat(seed=5, temperature=0, max_tokens=24))
        text = plain["choices"][0]["message"]["content"]
        stop = text[len(text) // 2:len(text) // 2 + 3]
        fields = {"seed": 5, "temperature": 0, "max_tokens": 24, "stop": [stop]}
        whole = target.json("POST", "/v1/chat/completions", target.chat(**fields))["choices"][0]
        chunks, _, _ = target.stream(target.chat(**fields))
        streamed = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
        self.assertEqual(streamed, text[:text.index(stop)])
        self.assertEqual(whole["message"]["content"], streamed)
        self.assertEqual(whole["finish_reason"], "stop")
        missed = target.json("POST", "/v1/chat/completions", target.chat(**{**fields, "stop": [text[-1] + "\u0001"]}))
        self.assertEqual(missed["choices"][0]["message"]["content"], text)

    def test_B021_stop_token_ids_end_the_answer(self):
        text = {"model": target.model, "prompt": "One two three"}
        for path, body in (("/v1/chat/completions", target.chat()), ("/v1/completions", text)):
            body = {**body, "seed": 5, "temperature": 0, "max_tokens": 24, "return_token_ids": True}
            ids = target.json("POST", path, body)["choices"][0]["token_ids"]
            stop = ids[len(ids) // 2]
            choice = target.json("POST", path, {**body, "stop_token_ids": [stop]})["choices"][0]
            self.assertEqual(choice["token_ids"], ids[:ids.index(stop) + 1])
            self.assertEqual(choice["finish_reason"], "stop")

    def test_B021_B072_ids_out_of_the_vocabulary(self):
        self.refused(400, "stop_token_ids", stop_token_ids=[99999999])
        self.refused(400, "logit_bias", logit_bias={"999999999": 1})
        self.refused(400, "logit_bias", logit_bias={"abc": 1})
        self.refused(400, "prompt", path="/v1/completions", prompt=[99999999])
        target.json("POST", "/v1/chat/completions", target.chat())

    def test_B075_same_seed_same_answer(self):
        answers = {target.json("POST", "/v1/chat/completions", target.chat(seed=1, temperature=1, max_tokens=16))["choices"][0]
                   ["message"]["content"] for _ in range(2)}
        self.assertEqual(len(answers), 1)

    def test_B080_huge_bodies(self):
        size = 100 * 1024 * 1024
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.key}\r\n"
                f"Content-Length: {size}\r\n\r\n").encode()

        def send_all(connection):
            block = b"x" * (1 << 20)
            for _ in range(100):
                connection.sendall(block)
            connection.shutdown(socket.SHUT_WR)

        answer = target.raw(head, send_all)
        self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), answer[:200])
        self.assertLess(len(answer), 4096)
        check_error(self, {"error_type": "invalid_request_error"}, answer.split(b"\r\n\r\n", 1)[1])

    def test_B081_the_field_is_named(self):
        self.refused(400, "temperature", temperature=9)

    def test_B082_nulls_are_absent(self):
        nulls = ("temperature", "top_p", "n", "stop", "stream", "stream_options", "max_completion_tokens", "presence_penalty",
                 "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "seed", "tools", "tool_choice",
                 "response_format", "reasoning_effort", "user", "metadata", "store")
        target.json("POST", "/v1/chat/completions", target.chat(**{name: None for name in nulls}))

    def test_B085_text_parts_are_joined(self):
        parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
        prompts = [target.json("POST", "/v1/chat/completions", target.chat(
            messages=[{"role": "user", "content": content}], return_token_ids=True))["prompt_token_ids"]
            for content in (parts, "one two")]
        self.assertEqual(prompts[0], prompts[1])

    def test_B114_both_ways_to_give_the_key(self):
        if not target.key:
            self.skipTest("the gateway has no keys")
        for headers in ({"x-api-key": target.key}, {"authorization": f"bearer {target.key}"}):
            self.assertEqual(target.request("GET", "/v1/models", headers=headers)[0], 200)
        self.assertEqual(target.request("GET", "/v1/models", headers={})[0], 401)

    def test_B121_overload_is_refused_in_time(self):
        body = target.chat(max_tokens=100, temperature=1)
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(lambda _: target.request("POST", "/v1/chat/completions", body), range(200)))
        statuses = {status for status, _, _ in answers}
        self.assertLessEqual(statuses, {200, 429, 503})
        self.assertIn(200, statuses)
        for status, headers, _ in answers:
            if status != 200:
                self.assertGreaterEqual(int(headers["retry-after"]), 1)

    def test_B123_huge_and_slow_headers(self):
        answer = target.raw(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Big: " + b"x" * (1 << 20))
        self.assertTrue(answer.startswith(b"HTTP/1.1 431 "), answer[:100])
        if target.is_stub:  # which waits 2 s; others wait longer
            answer = target.raw(b"GET /v1/mod")
            self.assertTrue(answer.startswith(b"HTTP/1.1 408 "), answer[:100])

    def test_B124_refusals_keep_the_connection_in_step(self):
        key = f"Authorization: Bearer {target.key}\r\n"
        body = '{"model": 5}'
        request = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{key}Content-Length: {len(body)}\r\n\r\n{body}"
        models = f"GET /v1/models HTTP/1.1\r\nHost: x\r\n{key}Connection: close\r\n\r\n"
        answer = target.raw((request + models).encode()).decode()
        self.assertEqual(re.findall(r"HTTP/1\.1 (\d+)", answer), ["400", "200"])

    def test_whole_answers_have_every_field(self):
        answer = target.json("POST", "/v1/chat/completions", target.chat())
        self.assertEqual(set(answer), {"id", "object", "created", "model", "choices", "usage"})
        self.assertTrue(answer["id"].startswith("chatcmpl-"))
        completion = target.json("POST", "/v1/completions", {"model": target.model, "prompt": "hi", "echo": True, "max_tokens": 0})
        self.assertEqual(completion["choices"][0]["text"], "hi")
        self.assertEqual(completion["usage"]["completion_tokens"], 0)
        self.assertTrue(completion["id"].startswith("cmpl-"))

    def test_models(self):
        model = target.json("GET", f"/v1/models/{target.model}")
        self.assertEqual((model["id"], model["object"]), (target.model, "model"))
        status, _, text = target.request("GET", "/v1/models/no%2Fsuch")
        self.assertEqual(status, 404)
        check_error(self, {"code": "model_not_found"}, text)
        status, headers, text = target.request("DELETE", "/v1/models")
        self.assertEqual((status, headers["allow"]), (405, "GET, HEAD, OPTIONS"))
        check_error(self, {"error_type": "invalid_request_error"}, text)
        self.assertEqual(target.request("OPTIONS", "/v1/chat/completions")[0], 204)


class Faults(unittest.TestCase):
    """Over clusters that fail."""

    def on(self, fault):
        stub = api_target.Target(fault)
        self.addCleanup(stub.close)
        return stub

    def test_B008_death_in_the_middle_is_an_error_event(self):
        stub = self.on("no-decode")
        chunks, text, _ = stub.stream(stub.chat(max_tokens=100))
        self.assertEqual(set(chunks[-1]), {"error"})
        self.assertEqual(set(chunks[-1]["error"]), {"message", "type", "param", "code"})
        self.assertNotIn("[DONE]", text)
        self.assertTrue(all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1]))
        status, headers, answer = stub.request("POST", "/v1/chat/completions", stub.chat(max_tokens=100))
        self.assertEqual(status, 503, answer)
        self.assertTrue(headers["retry-after"])
        for error in chunks[-1]["error"], json.loads(answer)["error"]:
            self.assertEqual(error["type"], "server_error")
            self.assertIn(error["code"], ("service_unavailable", "no_instance"))

    def test_a_death_that_another_worker_makes_good_is_not_seen(self):
        stub, good = self.on("decode-dies"), self.on("none")
        body = {"model": stub.model, "prompt": "hi", "max_tokens": 50, "seed": 3, "return_token_ids": True}
        answers = [t.json("POST", "/v1/completions", body)["choices"][0]["token_ids"] for t in (stub, good)]
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(len(answers[0]), 50)

    def test_B009_silence_is_filled(self):
        stub = self.on("slow")
        _, text, _ = stub.stream(stub.chat())
        self.assertIn(": keep-alive\n\n", text)


if __name__ == "__main__":
    unittest.main()
