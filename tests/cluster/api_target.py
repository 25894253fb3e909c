"""The gateway that API tests talk to: MILLRACE_API_URL (with MILLRACE_API_KEY, if it wants one), else a stub of the build:
the real HTTP server, API and runtime over a scripted cluster. Python's standard library only."""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import urllib.parse

BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD_DIR", "build"))
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
TIMEOUT_S = 120


class Target:
    def __init__(self, fault=None):  # with a fault: always a stub
        self.process = None
        self.is_stub = fault is not None or "MILLRACE_API_URL" not in os.environ
        if self.is_stub:
            self.process = subprocess.Popen([BUILD / "tests" / "stub_gateway", "--fault", fault or "none"], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE)
            started = json.loads(self.process.stdout.readline())
            self.url, self.key = started["url"], started["key"]
        else:
            self.url, self.key = os.environ["MILLRACE_API_URL"].rstrip("/"), os.environ.get("MILLRACE_API_KEY", "")
        parts = urllib.parse.urlparse(self.url)
        self.host, self.port = parts.hostname, parts.port
        model = self.json("GET", "/v1/models")["data"][0]
        self.model, self.context = model["id"], model["max_model_len"]

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(30)

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body) of one request; `body` may be bytes, text, or a value to send as JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        sent = {"Content-Type": "application/json", **(self.headers() if headers is None else headers)}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, sent)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def json(self, method, path, body=None):
        status, _, text = self.request(method, path, body)
        if status != 200:
            raise AssertionError(f"{method} {path}: {status} {text[:500]}")
        return json.loads(text)

    def chat(self, **fields):
        return {"model": self.model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, **fields}

    def stream(self, body, path="/v1/chat/completions"):
        """(chunks, raw text) of an event stream; the text must be framed as server-sent events."""
        status, headers, raw = self.request("POST", path, {**body, "stream": True})
        if status != 200:
            raise AssertionError(f"{status} {raw[:500]}")
        text = raw.decode()
        frames = text.split("\n\n")
        assert frames[-1] == "", "the last frame ends in an empty line"
        data = [f[len("data: "):] for f in frames[:-1] if f.startswith("data: ")]
        assert all(f.startswith((": ", "data: ")) and "\n" not in f for f in frames[:-1]), text
        return [json.loads(d) for d in data if d != "[DONE]"], text, headers

    def raw(self, data, more=None):
        """Everything the server sends back to these bytes, until it closes; `more` is called with the socket."""
        with socket.create_connection((self.host, self.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(data)
            if more:
                more(connection)
            received = b""
            while True:
                part = connection.recv(65536)
                if not part:
                    return received
                received += part


def load_cases():
    with open(GOLDEN / "api_cases.jsonl") as lines:
        return [json.loads(line) for line in lines]


def load_manifest():
    with open(GOLDEN / "api_manifest.json") as file:
        return json.load(file)
