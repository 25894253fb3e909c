// Word rules by the name that model files carry (tokenizer.ggml.pre). A rule set is applied in order: each expression
// cuts every piece left by those before it into its matches and what lies between them. Source: the tokenizer.json of
// the models and the names that llama.cpp's converter gives them.

#include "common/recipe/pretokenizer_rules.h"

namespace millrace::recipe {
namespace {

// Contractions, of either case and of lower case only.
#define MR_ANY_CASE R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
#define MR_LOWER_CASE R"('s|'t|'re|'ve|'m|'ll|'d)"
#define MR_LINES_AND_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr std::string_view kGpt2 = MR_LOWER_CASE R"(| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr std::string_view kLlama3 =
    MR_ANY_CASE R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" MR_LINES_AND_SPACES;
constexpr std::string_view kQwen2 =
    MR_ANY_CASE R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" MR_LINES_AND_SPACES;
constexpr std::string_view kQwen35 =
    MR_ANY_CASE R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" MR_LINES_AND_SPACES;
constexpr std::string_view kMiniCpm5 =
    MR_ANY_CASE R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)" MR_LINES_AND_SPACES;
constexpr std::string_view kSeedCoder =
    MR_ANY_CASE R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)" MR_LINES_AND_SPACES;
constexpr std::string_view kBailingMoe =
    R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" MR_LINES_AND_SPACES;
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" MR_ANY_CASE R"(?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" MR_ANY_CASE R"(?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" MR_LINES_AND_SPACES;
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" MR_LINES_AND_SPACES;
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";

#undef MR_ANY_CASE
#undef MR_LOWER_CASE
#undef MR_LINES_AND_SPACES

constexpr std::string_view kGpt2Names[] = {"gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum",         "mpt",
                                           "olmo",  "jais",  "trillion", "exaone4", "granite-docling"};
constexpr std::string_view kDigitsNames[] = {"smollm",    "starcoder", "refact",     "command-r",
                                             "codeshell", "exaone",    "minerva-7b", "mellum2"};
constexpr std::string_view kLlama3Names[] = {"llama-bpe", "llama3",  "llama-v3", "falcon3",
                                             "falcon-h1", "pixtral", "midm-2.0", "lfm2"};
constexpr std::string_view kLlama3MergedNames[] = {"dbrx", "smaug-bpe", "chatglm-bpe"};
constexpr std::string_view kGlm4Names[] = {"glm4", "glm5"};
constexpr std::string_view kQwen2Names[] = {"qwen2",     "deepseek-r1-qwen", "kormo",  "megrez",
                                            "stablelm2", "hunyuan",          "grok-2", "solar-open"};
constexpr std::string_view kDeepSeek3Names[] = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"};
constexpr std::string_view kGpt4oNames[] = {"gpt-4o", "llama4", "kanana2", "minimax-m2"};
constexpr std::string_view kBailingMoeNames[] = {"bailingmoe", "bailingmoe2", "llada-moe"};
constexpr std::string_view kDefaultNames[] = {"default"};
constexpr std::string_view kQwen35Names[] = {"qwen35"};
constexpr std::string_view kMiniCpm5Names[] = {"minicpm5"};
constexpr std::string_view kSeedCoderNames[] = {"seed-coder"};
constexpr std::string_view kTekkenNames[] = {"tekken"};
constexpr std::string_view kFalconNames[] = {"falcon"};
constexpr std::string_view kDeepSeekLlmNames[] = {"deepseek-llm"};
constexpr std::string_view kDeepSeekCoderNames[] = {"deepseek-coder"};

constexpr std::string_view kGpt2Rules[] = {kGpt2};
constexpr std::string_view kDigitsRules[] = {R"(\p{N})", kGpt2};
constexpr std::string_view kLlama3Rules[] = {kLlama3};
constexpr std::string_view kQwen2Rules[] = {kQwen2};
constexpr std::string_view kQwen35Rules[] = {kQwen35};
constexpr std::string_view kMiniCpm5Rules[] = {R"(\p{N}{1,3})", kMiniCpm5};
constexpr std::string_view kSeedCoderRules[] = {kSeedCoder};
constexpr std::string_view kBailingMoeRules[] = {kBailingMoe};
constexpr std::string_view kTekkenRules[] = {kTekken};
constexpr std::string_view kGpt4oRules[] = {kGpt4o};
constexpr std::string_view kFalconRules[] = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, R"([0-9][0-9][0-9])"};
constexpr std::string_view kDefaultRules[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", R"([0-9][0-9][0-9])"};
constexpr std::string_view kDeepSeekLlmRules[] = {
    R"([\r\n])", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", R"([一-龥ࠀ-一가-퟿]+)",
    R"(\p{N}+)"};
constexpr std::string_view kDeepSeekCoderRules[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                                    R"([一-龥ࠀ-一가-퟿]+)", R"(\p{N})"};
constexpr std::string_view kDeepSeek3Rules[] = {R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)", kDeepSeek3};

constexpr PretokenizerRules kAll[] = {
    {.names = kDefaultNames, .expressions = kDefaultRules},
    {.names = kGpt2Names, .expressions = kGpt2Rules},
    {.names = kDigitsNames, .expressions = kDigitsRules},
    {.names = kLlama3Names, .expressions = kLlama3Rules, .usually_adds_bos = true, .whole_words_first = true},
    {.names = kLlama3MergedNames, .expressions = kLlama3Rules},
    {.names = kGlm4Names, .expressions = kLlama3Rules, .whole_words_first = true},
    {.names = kQwen2Names, .expressions = kQwen2Rules},
    {.names = kQwen35Names, .expressions = kQwen35Rules},
    {.names = kMiniCpm5Names, .expressions = kMiniCpm5Rules, .whole_words_first = true},
    {.names = kSeedCoderNames, .expressions = kSeedCoderRules},
    {.names = kBailingMoeNames, .expressions = kBailingMoeRules},
    {.names = kTekkenNames, .expressions = kTekkenRules, .usually_adds_bos = true, .whole_words_first = true},
    {.names = kGpt4oNames, .expressions = kGpt4oRules},
    {.names = kFalconNames, .expressions = kFalconRules},
    {.names = kDeepSeekLlmNames, .expressions = kDeepSeekLlmRules},
    {.names = kDeepSeekCoderNames, .expressions = kDeepSeekCoderRules},
    {.names = kDeepSeek3Names, .expressions = kDeepSeek3Rules},
};

}  // namespace

std::span<const PretokenizerRules> AllPretokenizerRules() { return kAll; }

}  // namespace millrace::recipe
