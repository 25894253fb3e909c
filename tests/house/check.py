#!/usr/bin/env python3
"""House rules that a machine can check. usage: check.py RULE SOURCE_DIR BUILD_DIR; prints each offence as file:line: what, exit 1."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

RULE, SOURCE, BUILD = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
CODE = (".cc", ".h")
# Headers of a third party may be named only below these folders (and in tests of that folder).
THIRD_PARTY = {
    r"grpcpp/|grpc/|google/protobuf/": ("common/rpc", "proto"),
    r"rocksdb/": ("common/store/rocksdb",),
    r"uc[pts]/": ("common/transfer/ucx",),
    r"prometheus/": ("common/telemetry",),
    r"boost/": ("common/http",),
    r"nlohmann/": ("common/config", "common/api", "common/telemetry", "services", "common/http"),
    r"pcre2": ("common/recipe",),
    r"openssl/": ("common/kv",),
    r"cuda|nccl": ("common/engine/cuda",),
}
IMPURE = [
    (r"_clock::now|SystemClock\(|WallClockMs", "reads a clock"),
    (r"\bsleep\b|sleep_for|sleep_until|usleep", "sleeps"),
    (r"std::(thread|jthread|mutex|shared_mutex|atomic|async|condition_variable)\b", "threads"),
    (r"random_device|\bs?rand\(|RandomSeed\(", "random device"),
    (r"\bgetenv\b", "environment"),
    (r"<(fstream|filesystem|cstdio|fcntl\.h|unistd\.h|sys/[a-z]+\.h|netinet/.*)>", "files, sockets"),
    (r"std::hash|std::shuffle|std::[a-z_]+_distribution|std::unordered_", "unspecified order or output"),
    (r"\bLog\(|LogLevel::", "logs"),
]


def files(*folders):
    for folder in folders:
        for path in sorted((SOURCE / folder).rglob("*")):
            if path.suffix in CODE:
                yield path


def lines(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        yield number, line


def where(path, number):
    return f"{path.relative_to(SOURCE)}:{number}"


def libraries():
    """name -> (layer, source dir, deps) as CMake wrote them."""
    out = {}
    for line in (BUILD / "millrace_deps.txt").read_text().splitlines():
        name, layer, folder, deps, _ = re.match(r"(\S+) (\d+) (\S+) deps=(\S*) third=(\S*)", line).groups()
        out[name] = (int(layer), pathlib.Path(folder), [d for d in deps.split(";") if d])
    return out


def owners():
    """source file -> library, from the compile commands and each CMakeLists' HEADERS."""
    out = {}
    for name, (_, folder, _) in libraries().items():
        text = (folder / "CMakeLists.txt").read_text()
        block = re.search(r"millrace_library\(" + re.escape(name) + r"\b(.*?)\n?\)", text, re.S)
        words = re.findall(r"[\w./+-]+\.(?:cc|h)\b", block.group(1) if block else "")
        entries = re.search(r"millrace_extensions\(" + re.escape(name) + r"\b.*?ENTRIES(.*?)\)", text, re.S)
        if entries:
            words += [e + ".cc" for e in re.findall(r"[\w/]+", entries.group(1))]
        for word in words:
            path = (folder / word).resolve()
            out[path] = name
    return out


def check_includes():
    """Third parties only in their adapter; common/ headers only of declared (transitive) dependencies."""
    bad = []
    for path in files("common", "services"):
        relative = str(path.relative_to(SOURCE))
        for number, line in lines(path):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            for pattern, folders in THIRD_PARTY.items():
                if re.match(pattern, match.group(1)) and not relative.startswith(folders):
                    bad.append(f"{where(path, number)}: {match.group(1)} may be included only below {', '.join(folders)}")
            if re.match(r"(absl|boost|nlohmann|grpcpp|google|rocksdb|uc[pts])/", match.group(1)) and path.suffix == ".h":
                bad.append(f"{where(path, number)}: third-party header {match.group(1)} in a header")
    libs, owner = libraries(), owners()

    def reach(name, seen):
        for dep in libs[name][2]:
            if dep not in seen and dep in libs:
                seen.add(dep)
                reach(dep, seen)
        return seen

    for path, name in owner.items():
        if not path.exists():
            continue
        allowed = reach(name, {name})
        for number, line in lines(path):
            match = re.match(r'\s*#\s*include\s*"(common/[^"]+)"', line)
            target = match and (SOURCE / match.group(1)).resolve()
            if target and target in owner and owner[target] not in allowed:
                bad.append(f"{where(path, number)}: {match.group(1)} is of '{owner[target]}', which '{name}' does not depend on")
    for path in files(*[f"common/{p.name}" for p in (SOURCE / "common").iterdir() if p.is_dir() and p.name != "cmake"]):
        if path.resolve() not in owner:
            bad.append(f"{path.relative_to(SOURCE)}: belongs to no millrace_library")
    return bad


def check_purity():
    bad = []
    libs = libraries()
    for path, name in owners().items():
        if libs[name][0] != 1 or not path.exists():
            continue
        for number, line in lines(path):
            code = line.split("//")[0]
            for pattern, what in IMPURE:
                if re.search(pattern, code):
                    bad.append(f"{where(path, number)}: {what} in a pure library ({name}): {code.strip()}")
    return bad


def check_reads():
    """Iterators over a stream's buffer throw when a read fails."""
    return [f"{where(path, number)}: istreambuf_iterator throws when a read fails; use config::ReadTextFile"
            for path in files("common", "services") for number, line in lines(path) if "istreambuf_iterator" in line]


def check_sizes():
    bad = []
    for path in files("common", "services", "tests"):
        count, limit = sum(1 for _ in lines(path)), 300 if path.suffix == ".h" and path.is_relative_to(SOURCE / "common") else 800
        if count > limit:
            bad.append(f"{path.relative_to(SOURCE)}: {count} lines, limit {limit}")
    for path in (SOURCE / "services").glob("*/main.cc"):
        count = sum(1 for _ in lines(path))
        if count > 150:
            bad.append(f"{path.relative_to(SOURCE)}: {count} lines, a main only wires: limit 150")
    for path in (SOURCE / "services").glob("*/README.md"):
        if len(path.read_text().splitlines()) > 40:
            bad.append(f"{path.relative_to(SOURCE)}: over 40 lines")
    return bad


def check_conditionals():
    bad = []
    adapters = re.compile(r"common/[a-z_]+/(ucx|cuda|nccl|rocksdb|ssd)[a-z_]*/")
    for path in files("common", "services"):
        for number, line in lines(path):
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)", line) and not adapters.match(str(path.relative_to(SOURCE))):
                bad.append(f"{where(path, number)}: conditional compilation outside an adapter: {line.strip()}")
    return bad


def check_tests():
    """Tests neither sleep nor use a fixed port nor the wall clock."""
    bad = []
    for path in list(files("tests")) + sorted((SOURCE / "tests").rglob("*.py")):
        relative = str(path.relative_to(SOURCE))
        if relative.startswith(("tests/bench", "tests/house")):
            continue
        for number, line in lines(path):
            if re.search(r"sleep_for|sleep_until|\busleep\(|system_clock", line):
                bad.append(f"{where(path, number)}: {line.strip()}")
    return bad


def check_format():
    tool = os.environ.get("MILLRACE_CLANG_FORMAT") or shutil.which("clang-format-18") or str(BUILD / "venv/bin/clang-format")
    if not shutil.which(tool):
        print("clang-format 18 is not installed: skipped")
        sys.exit(77)
    names = [str(p) for p in files("common", "services", "tests")]
    done = subprocess.run([tool, "--dry-run", "--Werror", "--style=file", *names], cwd=SOURCE, capture_output=True, text=True)
    return [] if done.returncode == 0 else sorted({l for l in done.stderr.splitlines() if "error:" in l})[:50]


def check_layers():
    """Configuring must fail when a library names a higher layer or a forbidden third party."""
    bad = []
    cases = {
        "later": ("millrace_library(low LAYER 1 SOURCES x.cc DEPS top)\nmillrace_library(top LAYER 3 SOURCES x.cc)",
                  "from the bottom layer up"),
        "upward": ("millrace_library(low LAYER 1 SOURCES x.cc DEPS high)", "may not depend on"),
        "runtime_on_adapter": ("millrace_library(run LAYER 4 SOURCES x.cc DEPS adapter)", "may not depend on the adapter"),
        "third_party": ("millrace_library(pure LAYER 1 SOURCES x.cc THIRD_PARTY millrace::dep_grpc)", "may use"),
        "allowed": ("millrace_library(fine LAYER 4 SOURCES x.cc DEPS high)", None),
    }
    for name, (text, expected) in cases.items():
        folder = BUILD / "house_layers" / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "common/cmake").mkdir(parents=True)
        shutil.copy(SOURCE / "common/cmake/empty_main.cc", folder / "common/cmake/empty_main.cc")
        (folder / "x.cc").write_text("int x;\n")
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\n"
            f"include({SOURCE}/common/cmake/Library.cmake)\n"
            "millrace_library(adapter LAYER 3 SOURCES x.cc)\nmillrace_library(high LAYER 2 SOURCES x.cc)\n" + text + "\n")
        done = subprocess.run(["cmake", "-S", folder, "-B", folder / "b"], capture_output=True, text=True)
        output = " ".join((done.stdout + done.stderr).split())
        if expected is None and done.returncode != 0:
            bad.append(f"layers: {name} should configure: {output[-300:]}")
        if expected is not None and (done.returncode == 0 or expected not in output):
            bad.append(f"layers: {name} was not refused with '{expected}'")
    return bad


def check_layer_table():
    """The table of docs/architecture.md names every library below the services, in its layer's row."""
    rows = {}
    for line in (SOURCE / "docs/architecture.md").read_text().splitlines():
        match = re.match(r"\| (\d)\b[^|]*\|([^|]*)\|", line)
        if match:
            names = re.sub(r"`(\w+)\{([\w,]+)\}`", lambda m: " ".join(f"`{m[1]}{n}`" for n in m[2].split(",")), match[2])
            rows[int(match[1])] = re.findall(r"`(\w+)`", names)
    return [f"docs/architecture.md: layer {layer} lacks `{name}`" for name, (layer, _, _) in libraries().items()
            if layer < 5 and name not in rows.get(layer, [])]


offences = globals()["check_" + RULE]()
for offence in offences:
    print(offence)
print(f"{RULE}: {len(offences)} offences")
sys.exit(1 if offences else 0)
