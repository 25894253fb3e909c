#!/usr/bin/env python3
"""Writes data/tensor_types.gguf: for each tensor type two rows quantised by llama.cpp and, as F32, what llama.cpp expands
them to. Needs llama-cpp-python (its libggml) and gguf."""
import ctypes
import pathlib

import gguf
import llama_cpp
import numpy as np

COLS, ROWS = 512, 2
TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]

ggml = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))


class Traits(ctypes.Structure):
    _fields_ = [("type_name", ctypes.c_char_p), ("blck_size", ctypes.c_int64),
                ("blck_size_interleave", ctypes.c_int64), ("type_size", ctypes.c_size_t),
                ("is_quantized", ctypes.c_bool), ("to_float", ctypes.c_void_p), ("from_float_ref", ctypes.c_void_p)]


ggml.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                     ctypes.c_int64, ctypes.c_void_p]
TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def main():
    out = pathlib.Path(__file__).parent.parent / "data" / "tensor_types.gguf"
    writer = gguf.GGUFWriter(str(out), "test")
    rng = np.random.default_rng(7)
    source = rng.standard_normal((ROWS, COLS)).astype(np.float32) * np.float32(0.05)
    source[0, :64] *= 40
    source[1, 32:64] = 0
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        traits = ggml.ggml_get_type_traits(int(qtype)).contents
        assert traits.type_name.decode().upper() == name, traits.type_name
        packed = np.zeros((ROWS, COLS // traits.blck_size * traits.type_size), np.uint8)
        written = ggml.ggml_quantize_chunk(int(qtype), source.ctypes.data, packed.ctypes.data, 0, ROWS, COLS, None)
        assert written == packed.nbytes, (name, written)
        floats = np.zeros((ROWS, COLS), np.float32)
        TO_FLOAT(traits.to_float)(packed.ctypes.data, floats.ctypes.data, ROWS * COLS)
        assert np.abs(floats - source).max() < 1.0, name
        if name in ("F16", "BF16"):
            writer.add_tensor(name, packed.view(np.uint16).view(np.float16) if name == "F16" else packed,
                              raw_dtype=qtype)
        else:
            writer.add_tensor(name, packed, raw_dtype=qtype)
        writer.add_tensor(name + ".expected", floats)
    writer.add_tensor("F32", source)
    writer.add_tensor("F32.expected", source)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(out, out.stat().st_size)


main()
