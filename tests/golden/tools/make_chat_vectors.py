#!/usr/bin/env python3
"""make_chat_vectors.py MODEL.gguf: writes data/chat_smollm2.json, for conversations of ours the prompt that Jinja2 renders
with the model's own template and the ids that llama.cpp gives it. Needs jinja2, gguf and llama-cpp-python."""
import json
import pathlib
import sys

import gguf
import llama_cpp
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONVERSATIONS = [
    [{"role": "user", "content": "Name the largest ocean."}],
    [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "What is 1+1?"}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello! How can I help?"},
     {"role": "user", "content": "Tell me a joke about the sea 🌊."}],
    [{"role": "system", "content": ""}, {"role": "user", "content": ""}],
    [{"role": "user", "content": "  leading and trailing spaces  \n\n"}, {"role": "assistant", "content": "\n"}],
    [{"role": "user", "content": "def f(x):\n\treturn x ** 2\n"}, {"role": "user", "content": "Explain it, s'il vous plaît: 你好"}],
]


def main():
    fields = gguf.GGUFReader(sys.argv[1]).fields
    source = fields["tokenizer.chat_template"].contents()
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = env.from_string(source)
    model = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
    cases = []
    for messages in CONVERSATIONS:
        for generation in (True, False):
            prompt = template.render(messages=messages, add_generation_prompt=generation)
            ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
            cases.append({"messages": messages, "add_generation_prompt": generation, "prompt": prompt, "ids": ids})
    out = pathlib.Path(__file__).parent.parent / "data" / "chat_smollm2.json"
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases)
    out.write_text(f'{{"llama_cpp_python": "{llama_cpp.__version__}", "cases": [\n{lines}\n]}}\n')
    print(out, len(cases), out.stat().st_size)


main()
