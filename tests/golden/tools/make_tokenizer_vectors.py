#!/usr/bin/env python3
"""make_tokenizer_vectors.py MODEL.gguf: writes data/tokenizer_smollm2.json, the ids that llama.cpp gives to texts of
ours, with special tokens parsed and not. Needs llama-cpp-python."""
import json
import pathlib
import random
import sys

import llama_cpp

CURATED = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\t\t x", "\r\n", "a\r\nb", " a", "a ", "a  b", "a   b    c",
    "Hello world", "Hello, world!", " Hello", "hello HELLO HeLLo", "The largest ocean is the Pacific Ocean.",
    "I'm, you're, he'll, she'd, they've, it's, DON'T, I'M, WE'LL", "can't won't 'tis 'twas rock'n'roll",
    "0", "12", "123", "1234567890", "3.14159", "1,000,000", "v1.2.3-rc4", "0x1F", "1e-5", "½ ² ٣ ௧ 一二三 Ⅷ",
    "für Straße naïve café Ærøskøbing", "Ŀ ŀ ǅ ſ ß ẞ İ ı", "Ελληνικά", "Русский текст", "עברית", "العربية",
    "हिन्दी की किताब", "ไทยไม่มีช่องว่าง", "中文文本没有空格。", "日本語のテキスト、カタカナ", "한국어 문장입니다", "Tiếng Việt",
    "e\u0301 vs \u00e9", "Z\u0361\u035cA\u0334L\u0321G\u0336O", "👍", "👍🏽", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷", "🙂🙃🫠", "x🙂y", "🧑🏻‍💻 codes",
    "def f(x):\n    return x**2\n\n\nif __name__ == '__main__':\n\tprint(f(3))\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }  // sum", "SELECT * FROM t WHERE a<>'b' AND c>=10;",
    "<html><body class=\"x\">&nbsp;</body></html>", "{\"a\": [1, 2.5, null, true], \"b\": {\"c\": \"d\\n\"}}",
    "https://example.org/a/b?c=d&e=f#g", "user@example.org", "C:\\path\\to\\file", "~/.config/x", "a_b-c.d/e\\f|g",
    "!!!", "...", "…", "??!!", "——", "((()))", "[[1]]", "$$x^2$$", "#hashtag @mention", "“quotes” ‘single’ «guillemets»",
    "\u00a0nbsp\u00a0", "\u2003em space\u2003", "\u200bzero\u200bwidth\u200b", "\ufeffbom", "\u2028line\u2029para", "a\u0000b",
    "\u0001\u0002\x7f", "\ufffd", "\U0010ffff", "\ue000 private", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "=" * 70, "-" * 33, " " * 40 + "x", "\n" * 9 + "x", "\t" * 6, "abc" * 30, "ha" * 25, "🙂" * 12, "的" * 20,
    "<|im_start|>", "<|im_end|>", "<|im_start|>user\nHi<|im_end|>\n", "a<|im_end|>b", "<|im_end|><|im_end|>", "<|im_end",
    "|im_end|>", "< |im_end|>", "<|im_start|>system\nYou are evil<|im_end|>", "<|endoftext|>", " <|endoftext|> ",
    "<repo_name>x<file_sep>y", "<gh_stars><jupyter_code>", "<empty_output>\n", "<<|im_start|>>", "<|IM_START|>",
    "supercalifragilisticexpialidocious antidisestablishmentarianism", "qwzxkjvb", "Ġ Ċ ĉ Ġthe", "▁▁ ▁a",
    "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch", "camelCaseAndPascalCase snake_case kebab-case",
    "  leading and trailing  ", "mixed \t \n \r\n whitespace \u00a0 here", "end with newline\n", "end with spaces   ",
    "1st 2nd 3rd 4th", "10:30am-11:45pm", "$9.99 €10 £5 ¥100", "50% off!", "H₂O CO₂ E=mc²", "∀x∈ℝ: x²≥0", "→←↑↓⇒",
]

ALPHABET = ["a", "b", "th", "ing", "E", "Q", " ", "  ", "\n", "\t", "\r", "'", "'s", "'LL", "0", "7", "42", ".", ",", "!", "-", "<",
            "|", ">", "<|im_end|>", "é", "ß", "ж", "中", "の", "한", "ا", "🙂", "\u200d", "\u00a0", "\u0301", "²", "_", "\\", "\""]


def main():
    model = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
    rng = random.Random(1)
    texts = list(CURATED)
    for _ in range(150):
        texts.append("".join(rng.choice(ALPHABET) for _ in range(rng.randint(2, 24))))
    cases = []
    for text in texts:
        raw = text.encode()
        parsed = model.tokenize(raw, add_bos=False, special=True)
        plain = model.tokenize(raw, add_bos=False, special=False)
        case = {"text": text, "ids": plain}
        if parsed != plain:
            case["ids_specials_parsed"] = parsed
        cases.append(case)
    out = pathlib.Path(__file__).parent.parent / "data" / "tokenizer_smollm2.json"
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases)
    out.write_text(f'{{"llama_cpp_python": "{llama_cpp.__version__}", "cases": [\n{lines}\n]}}\n')
    print(out, len(cases), out.stat().st_size)


main()
