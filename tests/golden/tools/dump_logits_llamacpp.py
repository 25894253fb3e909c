#!/usr/bin/env python3
"""dump_logits_llamacpp.py MODEL.gguf TEXTS.txt OUT_DIR [batch|single] [f16|f32]: llama.cpp's logits of every position
of every text, teacher-forced, as OUT_DIR/NN.f32 (row-major [position][vocabulary]). batch: a text in one step; single: one
token a step. The last word is the type of the KV cache (default f32)."""
import pathlib
import sys

import llama_cpp
import numpy as np


def main():
    path, texts, out = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    single = "single" in sys.argv[4:]
    kv = 1 if "f16" in sys.argv[4:] else 0
    out.mkdir(parents=True, exist_ok=True)
    model = llama_cpp.Llama(path, n_ctx=512, n_batch=512, n_ubatch=512, logits_all=True, type_k=kv, type_v=kv,
                            flash_attn=False, n_threads=2, n_threads_batch=2, verbose=False)
    for number, line in enumerate(pathlib.Path(texts).read_text().splitlines()):
        ids = [int(word) for word in line.split()]
        model.reset()
        if single:
            for token in ids:
                model.eval([token])
        else:
            model.eval(ids)
        logits = np.array(model.scores[:len(ids)], dtype=np.float32)
        logits.tofile(out / f"{number:02}.f32")
    print("llama-cpp-python", llama_cpp.__version__, llama_cpp.llama_print_system_info().decode())


main()
