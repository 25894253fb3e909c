#!/usr/bin/env python3
"""The official `openai` client against a gateway (see api_target.py). Exits 77 (skipped) where the package is not
installed; tests/run.sh installs it into the build folder's virtual environment."""
import os
import pathlib
import sys
import unittest

try:
    import openai
except ImportError:
    python = pathlib.Path(os.environ.get("MILLRACE_BUILD_DIR", "build")) / "venv" / "bin" / "python3"
    if pathlib.Path(sys.prefix) == python.parent.parent.absolute() or not python.exists():
        print("the openai package is not installed")
        sys.exit(77)
    os.execv(python, [str(python), *sys.argv])

import api_target


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.target = api_target.Target()
        cls.client = openai.OpenAI(base_url=cls.target.url + "/v1", api_key=cls.target.key or "none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.target.close()

    def chat(self, **fields):
        return self.client.chat.completions.create(
            model=self.target.model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=12, temperature=0,
            **fields)

    def test_lists_models(self):
        self.assertIn(self.target.model, [model.id for model in self.client.models.list()])
        self.assertEqual(self.client.models.retrieve(self.target.model).id, self.target.model)

    def test_whole_chat(self):
        answer = self.chat(seed=1)
        self.assertTrue(answer._request_id)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIsInstance(answer.choices[0].message.content, str)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_streams_a_chat(self):
        whole = self.chat(seed=1)
        text, roles, finishes, usage = "", [], [], None
        for chunk in self.chat(seed=1, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                roles += [choice.delta.role] if choice.delta.role else []
                finishes += [choice.finish_reason] if choice.finish_reason else []
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(roles, ["assistant"])
        self.assertEqual(finishes, [whole.choices[0].finish_reason])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_the_stream_helper_accumulates(self):
        with self.client.chat.completions.stream(
                model=self.target.model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=12, temperature=0,
                seed=1) as stream:
            for _ in stream:
                pass
            final = stream.current_completion_snapshot  # get_final_completion refuses answers cut at max_tokens
        self.assertEqual(final.choices[0].message.content, self.chat(seed=1).choices[0].message.content)

    def test_completions(self):
        arguments = dict(model=self.target.model, prompt="Once upon", max_tokens=8, temperature=0, seed=1)
        whole = self.client.completions.create(**arguments)
        streamed = "".join(c.choices[0].text for c in self.client.completions.create(**arguments, stream=True))
        self.assertEqual(streamed, whole.choices[0].text)

    def test_errors_have_their_own_classes(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(top_p=7)
        self.assertEqual(caught.exception.param, "top_p")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("no-such-model")
        self.assertEqual(caught.exception.code, "model_not_found")
        if self.target.key:
            with self.assertRaises(openai.AuthenticationError):
                openai.OpenAI(base_url=self.target.url + "/v1", api_key="wrong", max_retries=0).models.list()

    def test_an_error_in_the_middle_of_a_stream_raises(self):
        stub = api_target.Target("no-decode")
        self.addCleanup(stub.close)
        client = openai.OpenAI(base_url=stub.url + "/v1", api_key=stub.key, max_retries=0)
        with self.assertRaises(openai.APIError):
            for _ in client.chat.completions.create(model=stub.model, messages=[{"role": "user", "content": "hi"}],
                                                    max_tokens=50, stream=True):
                pass


if __name__ == "__main__":
    unittest.main()
