"""A real cluster for a test: `millrace up` with a state folder and ports of its own, and a client of its API.

Python's standard library only. Waits poll a condition until a deadline; nothing waits for a fixed time.
"""
import ctypes
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD_DIR", "build"))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
MILLRACE = BUILD / "bin" / "millrace"
MODEL = os.environ.get("MILLRACE_TEST_MODEL") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "millrace/models/smollm2-135m-instruct.gguf")

# Gauges that are 0 when no request is under way, by role.
LEAK_GAUGES = {
    "prefill": ["millrace_prefill_sessions", "millrace_prefill_waiting_requests", "millrace_prefill_held_blocks",
                "millrace_prefill_handoffs"],
    "decode": ["millrace_decode_sessions", "millrace_decode_reservations", "millrace_decode_held_blocks"],
    "store": ["millrace_store_leases", "millrace_store_pinned_buffers", "millrace_store_puts_in_flight"],
    "prefill-balancer": ["millrace_balancer_waiting_picks"],
    "decode-balancer": ["millrace_balancer_waiting_picks"],
    "gateway": ["millrace_gateway_active_requests", "millrace_gateway_open_streams", "millrace_gateway_reentries_active",
                "millrace_gateway_reentries_waiting"],
}
ROLES = ["prefill", "decode", "prefill-balancer", "decode-balancer", "store"]


def poll(condition, seconds, what, interval=0.05):
    """Returns the first true value of condition(); fails the test when there is none within `seconds`."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        pause.wait(interval)


class Failed(Exception):
    """An error answer: an HTTP error, an SSE error event, or a stream that was cut."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class Answer:
    def __init__(self):
        self.prompt_ids = []
        self.ids = []
        self.text = ""
        self.finish = None
        self.usage = None
        self.times = []  # of each event with text

    @property
    def cached(self):
        return self.usage["prompt_tokens_details"]["cached_tokens"]

    def add(self, chunk):
        if "error" in chunk:
            raise Failed(200, chunk["error"])
        self.usage = chunk.get("usage") or self.usage
        self.prompt_ids = self.prompt_ids or chunk.get("prompt_token_ids") or []
        for choice in chunk.get("choices", []):
            self.prompt_ids = self.prompt_ids or choice.get("prompt_token_ids") or []
            self.ids += choice.get("token_ids") or []
            text = choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or ""
            if text:
                self.times.append(time.monotonic())
            self.text += text
            self.finish = choice.get("finish_reason") or self.finish


class Request:
    """One request. Text, a list of ids, or messages as the prompt; `body` adds parameters."""

    def __init__(self, prompt, max_tokens=24, headers=None, **body):
        chat = isinstance(prompt, list) and prompt and isinstance(prompt[0], dict)
        self.target = "/v1/chat/completions" if chat else "/v1/completions"
        self.body = {"messages" if chat else "prompt": prompt, "max_tokens": max_tokens, **body}
        self.headers = headers or {}


class Stream(threading.Thread):
    """A request streamed on a thread of its own."""

    def __init__(self, cluster, request):
        super().__init__(daemon=True)
        self.cluster, self.request = cluster, request
        self.answer, self.error = Answer(), None
        self.start()

    def run(self):
        try:
            self.cluster.stream(self.request, self.answer)
        except (Failed, OSError, http.client.HTTPException) as error:
            self.error = error

    def result(self, seconds=300):
        self.join(seconds)
        if self.is_alive():
            raise AssertionError(f"a stream hangs after {len(self.answer.ids)} tokens")
        if self.error:
            raise self.error
        return self.answer


class StateHome:
    """A folder for the state of clusters. It is removed and what runs on it killed at close(), or when this process ends."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="millrace-cluster-")
        self.env = {**os.environ, "XDG_STATE_HOME": self.root}
        # In a session of its own: Ctrl-C does not reach it. Its input ends with this process.
        self.guard = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("guard.py"), self.root],
                                      stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      start_new_session=True)

    def close(self):
        self.guard.stdin.close()
        self.guard.wait(30)


class Cluster:
    def __init__(self, *flags, **counts):
        self.home = StateHome()
        self.root, self.env = self.home.root, self.home.env
        words = ["up", "--name", "test", "--port", "0", "--model", MODEL, "--detach", *flags]
        for name, count in counts.items():
            words += [f"--{name}", str(count)]
        done = self.run(*words, timeout=300)
        if done.returncode != 0:
            self.home.close()
            raise AssertionError(f"millrace up failed:\n{done.stdout}{done.stderr}")
        self.endpoint = self.status()["endpoint"]
        self.model = json.loads(self.get("/v1/models"))["data"][0]["id"]

    def run(self, *words, timeout=120):
        return subprocess.run([MILLRACE, *words], env=self.env, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)

    def close(self):
        down = self.run("down", "--name", "test")
        self.home.close()
        assert down.returncode == 0, down.stderr

    # ---- processes

    def status(self):
        return json.loads(self.run("status", "--name", "test", "--json").stdout)

    def processes(self, role=None):
        return [p for p in self.status()["processes"] if role in (None, p["role"])]

    def process(self, name):
        return next(p for p in self.processes() if p["name"] == name)

    def signal(self, name, number):
        pid = self.process(name)["pid"]
        os.kill(pid, number)
        return pid

    def wait_ready(self, seconds=60):
        poll(lambda: all(p["ready"] for p in self.processes()), seconds, "every process is ready", 0.2)
        # Ready processes may not have found each other yet.
        poll(lambda: self.get_status("/readyz", self.process("gateway-0")["ports"]["admin"]) == 200, seconds,
             "the gateway is ready", 0.2)

    def log_tail(self, name, lines=15):
        path = pathlib.Path(self.root) / "millrace" / "test" / "logs" / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    # ---- HTTP

    def get(self, target):
        with urllib.request.urlopen(self.endpoint + target, timeout=30) as answer:
            return answer.read().decode()

    @staticmethod
    def get_status(target, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", target)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def metrics(self, process):
        """name or name{labels} -> value, of one process as status() lists it."""
        url = f"http://127.0.0.1:{process['ports']['admin']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {m.group(1): float(m.group(2)) for m in (re.match(r"([a-z_]+(?:\{.*\})?) (\S+)$", l) for l in lines) if m}

    def metric(self, role, name):
        """The sum of a metric over the processes of a role and all labels."""
        return sum(value for process in self.processes(role) if process["ready"]
                   for key, value in self.metrics(process).items() if key.split("{")[0] == name)

    def leaks(self):
        """What is not 0 and should be when nothing is under way."""
        found = {}
        for process in self.processes():
            values = self.metrics(process) if process["state"] != "stopped" else {}
            for gauge in LEAK_GAUGES[process["role"]]:
                matching = [v for k, v in values.items() if k.split("{")[0] == gauge]
                if not matching or any(matching):
                    found[f"{process['name']} {gauge}"] = matching or "missing"
        return found

    def assert_no_leaks(self, seconds=10):
        try:
            poll(lambda: not self.leaks(), seconds, "leak gauges are 0", 0.2)
        except AssertionError:
            raise AssertionError(f"leak gauges are not 0: {self.leaks()}") from None

    def connect(self, timeout=300):
        host, port = re.match(r"http://(.*):(\d+)$", self.endpoint).groups()
        return http.client.HTTPConnection(host, int(port), timeout=timeout)

    def open(self, request, **body):
        """Sends a request; returns its connection and response."""
        body = {"model": self.model, "return_token_ids": True, **request.body, **body}
        connection = self.connect()
        connection.request("POST", request.target, json.dumps(body), {"Content-Type": "application/json", **request.headers})
        return connection, connection.getresponse()

    def ask(self, request):
        """The whole answer, not streamed."""
        connection, response = self.open(request)
        with connection:
            text = response.read().decode()
            if response.status != 200:
                raise Failed(response.status, text)
            answer = Answer()
            answer.add(json.loads(text))
            return answer

    def stream(self, request, answer=None):
        """The answer of a stream, each event added to `answer` as it comes."""
        answer = answer or Answer()
        connection, response = self.open(request, stream=True, stream_options={"include_usage": True})
        try:
            if response.status != 200:
                raise Failed(response.status, response.read().decode())
            done = False
            for line in response:
                line = line.decode().strip()
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    answer.add(json.loads(line[6:]))
            if not done:
                raise Failed(200, "the stream ended without [DONE]")
            return answer
        finally:
            connection.close()


# http.client's connection is no context manager before 3.14.
if not hasattr(http.client.HTTPConnection, "__enter__"):
    http.client.HTTPConnection.__enter__ = lambda self: self
    http.client.HTTPConnection.__exit__ = lambda self, *_: self.close()


def generate(request):
    """What `millrace generate` answers to the same request in one process."""
    body = dict(request.body)
    words = [MILLRACE, "generate", "--json", "--model", MODEL, "--max-tokens", str(body.pop("max_tokens"))]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        prompt = body.pop("messages", None) or body.pop("prompt")
        if isinstance(prompt, str):
            words += ["--prompt", prompt]
        else:
            json.dump(prompt, file)
            file.flush()
            words += ["--messages" if isinstance(prompt[0], dict) else "--prompt-ids", file.name]
        for name, value in body.items():
            if value is True:
                words.append(f"--{name.replace('_', '-')}")
            else:
                words += [f"--{name.replace('_', '-')}", str(value)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{words} failed: {done.stderr}")
    result = json.loads(done.stdout)
    answer = Answer()
    answer.prompt_ids, answer.ids = result["prompt_token_ids"], result["token_ids"]
    answer.text, answer.finish = result["text"], result["finish_reason"]
    return answer


def text_of(characters, start=0):
    """English text of the repository itself, for prompts of any length."""
    text = (SOURCE / "LICENSE").read_text() + (SOURCE / "README.md").read_text()
    text = " ".join(text.split())
    return (text * (1 + (start + characters) // len(text)))[start:start + characters]


class ClusterTest(unittest.TestCase):
    """One cluster for all tests of a class. `flags` and `counts` are those of `millrace up`."""
    flags = ()
    counts = {}

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(*cls.flags, **cls.counts)
        cls.addClassCleanup(cls.cluster.close)

    def run(self, result=None):
        failures = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > failures:
            for process in self.cluster.processes():
                print(f"---- {process['name']}: {process['state']}\n{self.cluster.log_tail(process['name'])}", file=sys.stderr)

    def assert_same(self, answer, oracle, what=""):
        self.assertEqual(answer.prompt_ids, oracle.prompt_ids, what)
        self.assertEqual(answer.ids, oracle.ids, what)
        self.assertEqual(answer.text, oracle.text, what)
        self.assertEqual(answer.finish, oracle.finish, what)
        if answer.usage:
            self.assertEqual(answer.usage["prompt_tokens"], len(oracle.prompt_ids), what)
            self.assertEqual(answer.usage["completion_tokens"], len(oracle.ids), what)


def main():
    if not pathlib.Path(MODEL).is_file():
        print(f"no model at {MODEL}: skipped")
        sys.exit(77)
    # Ends with ctest, however that ends; a StateHome clears up what it leaves.
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    unittest.main(verbosity=2)
