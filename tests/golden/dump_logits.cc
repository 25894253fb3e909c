// dump_logits MODEL.gguf TEXTS.txt OUT_DIR [f16|f32] [avx2|avx512]: our engine's logits of every position of every text
// (token ids, one text a line), teacher-forced, as OUT_DIR/NN.f32, row-major [position][vocabulary].

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/golden/teacher_forcing.h"

namespace millrace::test {
namespace {

int Fail(const std::string& what) {
  std::fprintf(stderr, "dump_logits: %s\n", what.c_str());
  return 1;
}

int Main(int argc, char** argv) {
  if (argc < 4) return Fail("usage: dump_logits MODEL.gguf TEXTS.txt OUT_DIR [f16|f32] [avx2|avx512]");
  engine::CpuOptions options;
  options.model_path = argv[1];
  options.use_cache = false;
  options.context_tokens = 512;
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "f16") {
      options.kv_type = kv::ElementType::kF16;
    } else if (word == "f32") {
      options.kv_type = kv::ElementType::kF32;
    } else if (word == "avx2") {
      options.isa = engine::cpu::Isa::kAvx2;
    } else if (word == "avx512") {
      options.isa = engine::cpu::Isa::kAvx512;
    } else {
      return Fail("unknown word '" + word + "'");
    }
  }
  const std::vector<std::vector<int32_t>> texts = ReadTokenLines(argv[2]);
  if (texts.empty()) return Fail(std::string(argv[2]) + " has no texts");
  options.kv_blocks = BlocksOfTexts(texts);
  const auto backend = engine::OpenCpuBackend(options);
  if (!backend.ok()) return Fail(backend.status().ToString());

  std::filesystem::create_directories(argv[3]);
  std::vector<std::ofstream> files;
  for (size_t i = 0; i < texts.size(); ++i) {
    char name[32];
    std::snprintf(name, sizeof(name), "/%02zu.f32", i);
    files.emplace_back(std::string(argv[3]) + name, std::ios::binary);
  }
  const Status run = TeacherForce(**backend, texts, [&](size_t text, size_t, std::span<const float> logits) {
    files[text].write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
  });
  if (!run.ok()) return Fail(run.ToString());
  for (std::ofstream& file : files) {
    file.close();
    if (file.fail()) return Fail("writing failed; is the disk full?");
  }
  std::printf("%s\n", (*backend)->description().c_str());
  return 0;
}

}  // namespace
}  // namespace millrace::test

int main(int argc, char** argv) { return millrace::test::Main(argc, argv); }
