#include "common/recipe/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/lexer.h"

namespace millrace::recipe::jinja {
namespace {

constexpr int kMaxNesting = 150;
constexpr uint32_t kMaxDepth = 500;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block Template() {
    Block body = Statements({});
    if (Current().kind != TokenKind::kEnd) FailHere("unexpected end of template");
    return body;
  }

 private:
  using Mutable = std::unique_ptr<Expression>;
  using Names = std::initializer_list<std::string_view>;

  // Counts the nesting of what is parsed, so that no source can exhaust the stack.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) parser_.FailHere("it is nested too deep");
    }
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  [[noreturn]] void FailHere(const std::string& what) const {
    Fail(FailureKind::kSyntax, what + " (line " + std::to_string(Current().line) + ")");
  }

  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool AtName(std::string_view name) const { return Current().kind == TokenKind::kName && Current().text == name; }
  bool AtOperator(std::string_view op) const { return Current().kind == TokenKind::kOperator && Current().text == op; }
  bool AtAnyName(Names names) const {
    return Current().kind == TokenKind::kName && std::find(names.begin(), names.end(), Current().text) != names.end();
  }
  bool SkipName(std::string_view name) { return AtName(name) && (Take(), true); }
  bool SkipOperator(std::string_view op) { return AtOperator(op) && (Take(), true); }
  void ExpectOperator(std::string_view op) {
    if (!SkipOperator(op)) FailHere("expected '" + std::string(op) + "', got " + Describe());
  }
  void ExpectName(std::string_view name) {
    if (!SkipName(name)) FailHere("expected '" + std::string(name) + "', got " + Describe());
  }
  std::string TakeName() {
    if (Current().kind != TokenKind::kName) FailHere("expected a name, got " + Describe());
    return Take().text;
  }
  void ExpectBlockEnd() {
    if (Current().kind != TokenKind::kBlockEnd) FailHere("expected end of statement block, got " + Describe());
    Take();
  }
  std::string Describe() const {
    switch (Current().kind) {
      case TokenKind::kBlockEnd:
        return "end of statement block";
      case TokenKind::kVariableEnd:
        return "end of print statement";
      case TokenKind::kEnd:
        return "end of template";
      default:
        return "'" + Current().text + "'";
    }
  }

  // The tree is walked and freed by recursion: its depth is bounded wherever it grows.
  void Deepen(Expression& parent, const Expression& child) const {
    parent.depth = std::max(parent.depth, child.depth + 1);
    if (parent.depth > kMaxDepth) FailHere("it is nested too deep");
  }
  void Adopt(Expression& parent, ExpressionPtr child) const {
    if (child != nullptr) Deepen(parent, *child);
    parent.children.push_back(std::move(child));
  }

  Mutable Make(ExpressionKind kind) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = Current().line;
    return node;
  }
  std::unique_ptr<Statement> MakeStatement(StatementKind kind) const {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->line = Current().line;
    return node;
  }

  // Up to a block that starts with one of `ends`, whose "{%" is consumed and whose name is current.
  Block Statements(Names ends) {
    const Nesting nesting(*this);
    Block body;
    while (Current().kind != TokenKind::kEnd) {
      if (Current().kind == TokenKind::kData) {
        auto data = MakeStatement(StatementKind::kData);
        data->name = Take().text;
        body.push_back(std::move(data));
      } else if (Current().kind == TokenKind::kVariableBegin) {
        Take();
        auto output = MakeStatement(StatementKind::kOutput);
        output->expression = Tuple(true, {});
        if (Current().kind != TokenKind::kVariableEnd) {
          FailHere("expected end of print statement, got " + Describe());
        }
        Take();
        body.push_back(std::move(output));
      } else {
        Take();
        if (AtAnyName(ends)) return body;
        BlockTag(body);
      }
    }
    if (ends.size() != 0) FailHere("unexpected end of template, expected '" + std::string(*ends.begin()) + "'");
    return body;
  }

  void BlockTag(Block& body) {
    const std::string tag = TakeName();
    if (tag == "if") return body.push_back(If());
    if (tag == "for") return body.push_back(For());
    if (tag == "set") return body.push_back(Set());
    if (tag == "macro") return body.push_back(Macro());
    if (tag == "call") return body.push_back(Call());
    if (tag == "filter") return body.push_back(FilterBlock());
    if (tag == "with") return body.push_back(With());
    if (tag == "generation") {
      ExpectBlockEnd();
      for (auto& statement : Statements({"endgeneration"})) body.push_back(std::move(statement));
      Take();
      return ExpectBlockEnd();
    }
    if (tag == "break" || tag == "continue") {
      body.push_back(MakeStatement(tag == "break" ? StatementKind::kBreak : StatementKind::kContinue));
      return ExpectBlockEnd();
    }
    --at_;
    FailHere("Encountered unknown tag '" + tag + "'");
  }

  std::unique_ptr<Statement> If() {
    auto node = MakeStatement(StatementKind::kIf);
    node->expression = Tuple(false, {});
    ExpectBlockEnd();
    node->body = Statements({"elif", "else", "endif"});
    if (SkipName("elif")) {
      const Nesting nesting(*this);
      node->otherwise.push_back(If());
      return node;  // the inner one consumed endif
    }
    if (SkipName("else")) {
      ExpectBlockEnd();
      node->otherwise = Statements({"endif"});
    }
    Take();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> For() {
    auto node = MakeStatement(StatementKind::kFor);
    node->target = Target();
    ExpectName("in");
    node->expression = Tuple(false, {"recursive"});
    if (SkipName("if")) node->filter = Expr(true);
    node->recursive = SkipName("recursive");
    ExpectBlockEnd();
    node->body = Statements({"endfor", "else"});
    if (SkipName("else")) {
      ExpectBlockEnd();
      node->otherwise = Statements({"endfor"});
    }
    Take();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> Set() {
    auto node = MakeStatement(StatementKind::kSet);
    node->target = Target();
    if (SkipOperator("=")) {
      node->expression = Tuple(true, {});
      ExpectBlockEnd();
      return node;
    }
    node->kind = StatementKind::kSetBlock;
    node->filter = Filters(nullptr);
    ExpectBlockEnd();
    node->body = Statements({"endset"});
    Take();
    ExpectBlockEnd();
    return node;
  }

  std::vector<Parameter> Parameters() {
    std::vector<Parameter> parameters;
    ExpectOperator("(");
    while (!AtOperator(")")) {
      if (!parameters.empty()) ExpectOperator(",");
      if (AtOperator(")")) break;
      Parameter parameter;
      parameter.name = TakeName();
      if (SkipOperator("=")) parameter.value = Expr(true);
      parameters.push_back(std::move(parameter));
    }
    Take();
    return parameters;
  }

  std::unique_ptr<Statement> Macro() {
    auto node = MakeStatement(StatementKind::kMacro);
    node->name = TakeName();
    node->parameters = Parameters();
    ExpectBlockEnd();
    node->body = Statements({"endmacro"});
    Take();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> Call() {
    auto node = MakeStatement(StatementKind::kCall);
    if (AtOperator("(")) node->parameters = Parameters();
    node->expression = Expr(true);
    if (node->expression->kind != ExpressionKind::kCall) FailHere("expected call");
    ExpectBlockEnd();
    node->body = Statements({"endcall"});
    Take();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> FilterBlock() {
    auto node = MakeStatement(StatementKind::kFilter);
    Mutable around = Make(ExpressionKind::kFilter);
    around->name = TakeName();
    Adopt(*around, nullptr);
    if (AtOperator("(")) Arguments(*around);
    node->filter = Filters(std::move(around));
    ExpectBlockEnd();
    node->body = Statements({"endfilter"});
    Take();
    ExpectBlockEnd();
    return node;
  }

  std::unique_ptr<Statement> With() {
    auto node = MakeStatement(StatementKind::kWith);
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!node->parameters.empty()) ExpectOperator(",");
      Parameter parameter;
      parameter.name = TakeName();
      ExpectOperator("=");
      parameter.value = Expr(true);
      node->parameters.push_back(std::move(parameter));
    }
    ExpectBlockEnd();
    node->body = Statements({"endwith"});
    Take();
    ExpectBlockEnd();
    return node;
  }

  ExpressionPtr OneTarget() {
    const Nesting nesting(*this);
    if (SkipOperator("(")) {
      ExpressionPtr inner = Target();
      ExpectOperator(")");
      return inner;
    }
    Mutable name = Make(ExpressionKind::kName);
    name->name = TakeName();
    if (!SkipOperator(".")) return name;
    Mutable attribute = Make(ExpressionKind::kAttribute);
    attribute->name = TakeName();
    Adopt(*attribute, std::move(name));
    return attribute;
  }

  ExpressionPtr Target() {
    ExpressionPtr first = OneTarget();
    if (!AtOperator(",")) return first;
    Mutable tuple = Make(ExpressionKind::kTuple);
    Adopt(*tuple, std::move(first));
    while (SkipOperator(",")) {
      if (AtName("in") || AtOperator("=") || AtOperator(")")) break;
      Adopt(*tuple, OneTarget());
    }
    return tuple;
  }

  bool AtTupleEnd(Names ends) const {
    return Current().kind == TokenKind::kVariableEnd || Current().kind == TokenKind::kBlockEnd || AtOperator(")") ||
           AtAnyName(ends);
  }

  // Expressions divided by commas; one without a comma is itself.
  ExpressionPtr Tuple(bool with_condition, Names ends, bool in_parentheses = false) {
    Mutable tuple = Make(ExpressionKind::kTuple);
    bool is_tuple = false;
    while (true) {
      if (!tuple->children.empty()) {
        if (!SkipOperator(",")) break;
        is_tuple = true;
      }
      if (AtTupleEnd(ends)) break;
      Adopt(*tuple, Expr(with_condition));
    }
    if (!is_tuple && tuple->children.size() == 1) {
      ExpressionPtr only = std::move(tuple->children[0]);
      return only;
    }
    if (tuple->children.empty() && !in_parentheses) FailHere("Expected an expression, got " + Describe());
    return tuple;
  }

  ExpressionPtr Expr(bool with_condition) {
    const Nesting nesting(*this);
    ExpressionPtr left = Or();
    if (!with_condition) return left;
    while (SkipName("if")) {
      Mutable node = Make(ExpressionKind::kCondition);
      ExpressionPtr condition = Or();
      ExpressionPtr otherwise = SkipName("else") ? Expr(true) : nullptr;
      Adopt(*node, std::move(condition));
      Adopt(*node, std::move(left));
      Adopt(*node, std::move(otherwise));
      left = std::move(node);
    }
    return left;
  }

  Mutable Binary(std::string op, ExpressionPtr left, ExpressionPtr right) const {
    Mutable node = Make(ExpressionKind::kBinary);
    node->name = std::move(op);
    Adopt(*node, std::move(left));
    Adopt(*node, std::move(right));
    return node;
  }

  ExpressionPtr Or() {
    ExpressionPtr left = And();
    while (SkipName("or")) left = Binary("or", std::move(left), And());
    return left;
  }

  ExpressionPtr And() {
    ExpressionPtr left = Not();
    while (SkipName("and")) left = Binary("and", std::move(left), Not());
    return left;
  }

  ExpressionPtr Not() {
    const Nesting nesting(*this);
    if (!SkipName("not")) return Compare();
    Mutable node = Make(ExpressionKind::kUnary);
    node->name = "not";
    Adopt(*node, Not());
    return node;
  }

  ExpressionPtr Compare() {
    ExpressionPtr first = Sum();
    Mutable node = Make(ExpressionKind::kCompare);
    while (true) {
      if (AtOperator("==") || AtOperator("!=") || AtOperator("<") || AtOperator("<=") || AtOperator(">") ||
          AtOperator(">=")) {
        node->operators.push_back(Take().text);
      } else if (SkipName("in")) {
        node->operators.push_back("in");
      } else if (AtName("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
        Take();
        Take();
        node->operators.push_back("not in");
      } else {
        break;
      }
      Adopt(*node, Sum());
    }
    if (node->operators.empty()) return first;
    node->depth = std::max(node->depth, first->depth + 1);
    node->children.insert(node->children.begin(), std::move(first));
    return node;
  }

  ExpressionPtr Sum() {
    ExpressionPtr left = Concat();
    while (AtOperator("+") || AtOperator("-")) {
      std::string op = Take().text;
      left = Binary(std::move(op), std::move(left), Concat());
    }
    return left;
  }

  ExpressionPtr Concat() {
    ExpressionPtr first = Product();
    if (!AtOperator("~")) return first;
    Mutable node = Make(ExpressionKind::kConcat);
    Adopt(*node, std::move(first));
    while (SkipOperator("~")) Adopt(*node, Product());
    return node;
  }

  ExpressionPtr Product() {
    ExpressionPtr left = Power();
    while (AtOperator("*") || AtOperator("/") || AtOperator("//") || AtOperator("%")) {
      std::string op = Take().text;
      left = Binary(std::move(op), std::move(left), Power());
    }
    return left;
  }

  ExpressionPtr Power() {
    ExpressionPtr left = Unary(true);
    while (SkipOperator("**")) left = Binary("**", std::move(left), Unary(true));
    return left;
  }

  ExpressionPtr Unary(bool with_filters) {
    const Nesting nesting(*this);
    ExpressionPtr node;
    if (AtOperator("-") || AtOperator("+")) {
      Mutable unary = Make(ExpressionKind::kUnary);
      unary->name = Take().text;
      Adopt(*unary, Unary(false));
      node = std::move(unary);
    } else {
      node = Primary();
    }
    node = Postfix(std::move(node));
    return with_filters ? FiltersAndTests(std::move(node)) : std::move(node);
  }

  ExpressionPtr Constant(Value value) const {
    Mutable node = Make(ExpressionKind::kConstant);
    node->value = std::move(value);
    return node;
  }

  ExpressionPtr Primary() {
    switch (Current().kind) {
      case TokenKind::kName:
        return NameOrConstant();
      case TokenKind::kString: {
        std::string text = Take().text;
        while (Current().kind == TokenKind::kString) text += Take().text;
        return Constant(Value::Literal(std::move(text)));
      }
      case TokenKind::kInteger: {
        const std::string digits = Take().text;
        int64_t value = 0;
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return Constant(parsed.ec == std::errc() ? Value(value) : Value(BigInteger{digits}));
      }
      case TokenKind::kFloat: {
        const std::string text = Take().text;
        double value = 0;
        std::from_chars(text.data(), text.data() + text.size(), value);
        return Constant(value);
      }
      default:
        break;
    }
    if (SkipOperator("(")) {
      ExpressionPtr inner = Tuple(true, {}, true);
      ExpectOperator(")");
      return inner;
    }
    if (SkipOperator("[")) return ListLiteral();
    if (SkipOperator("{")) return DictLiteral();
    FailHere("unexpected " + Describe());
  }

  ExpressionPtr NameOrConstant() {
    const Token token = Take();
    if (token.text == "true" || token.text == "True") return Constant(true);
    if (token.text == "false" || token.text == "False") return Constant(false);
    if (token.text == "none" || token.text == "None") return Constant(None{});
    Mutable node = Make(ExpressionKind::kName);
    node->name = token.text;
    return node;
  }

  ExpressionPtr ListLiteral() {
    Mutable node = Make(ExpressionKind::kList);
    while (!AtOperator("]")) {
      if (!node->children.empty()) ExpectOperator(",");
      if (AtOperator("]")) break;
      Adopt(*node, Expr(true));
    }
    Take();
    return node;
  }

  ExpressionPtr DictLiteral() {
    Mutable node = Make(ExpressionKind::kDict);
    while (!AtOperator("}")) {
      if (!node->children.empty()) ExpectOperator(",");
      if (AtOperator("}")) break;
      Adopt(*node, Expr(true));
      ExpectOperator(":");
      Adopt(*node, Expr(true));
    }
    Take();
    return node;
  }

  ExpressionPtr Postfix(ExpressionPtr node) {
    while (true) {
      if (SkipOperator(".")) {
        Mutable attribute = Make(ExpressionKind::kAttribute);
        if (Current().kind == TokenKind::kInteger) {
          attribute->kind = ExpressionKind::kItem;
          Adopt(*attribute, std::move(node));
          Adopt(*attribute, Primary());
        } else {
          attribute->name = TakeName();
          Adopt(*attribute, std::move(node));
        }
        node = std::move(attribute);
      } else if (SkipOperator("[")) {
        node = Subscript(std::move(node));
      } else if (AtOperator("(")) {
        node = CallOf(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr CallOf(ExpressionPtr callee) {
    Mutable call = Make(ExpressionKind::kCall);
    Adopt(*call, std::move(callee));
    Arguments(*call);
    return call;
  }

  ExpressionPtr Subscript(ExpressionPtr base) {
    Mutable node = Make(ExpressionKind::kItem);
    Adopt(*node, std::move(base));
    Adopt(*node, AtOperator(":") ? nullptr : Tuple(true, {}));
    if (AtOperator(":")) {
      node->kind = ExpressionKind::kSlice;
      while (SkipOperator(":")) {
        if (node->children.size() > 3) FailHere("a slice has too many parts");
        Adopt(*node, AtOperator(":") || AtOperator("]") ? nullptr : Expr(true));
      }
      node->children.resize(4);
    }
    ExpectOperator("]");
    return node;
  }

  void Arguments(Expression& call) {
    ExpectOperator("(");
    bool first = true;
    while (!AtOperator(")")) {
      if (!first) ExpectOperator(",");
      first = false;
      if (AtOperator(")")) break;
      if (AtOperator("*") || AtOperator("**")) FailHere("unpacking of arguments is not supported");
      if (Current().kind == TokenKind::kName && Ahead().kind == TokenKind::kOperator && Ahead().text == "=") {
        std::string name = TakeName();
        Take();
        ExpressionPtr value = Expr(true);
        Deepen(call, *value);
        call.named.emplace_back(std::move(name), std::move(value));
      } else {
        if (!call.named.empty()) FailHere("invalid syntax for function call expression");
        Adopt(call, Expr(true));
      }
    }
    Take();
  }

  ExpressionPtr FiltersAndTests(ExpressionPtr node) {
    while (true) {
      if (AtOperator("|")) {
        node = OneFilter(std::move(node));
      } else if (SkipName("is")) {
        node = Test(std::move(node));
      } else if (AtOperator("(")) {
        node = CallOf(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr OneFilter(ExpressionPtr node) {
    ExpectOperator("|");
    Mutable filter = Make(ExpressionKind::kFilter);
    filter->name = TakeName();
    Adopt(*filter, std::move(node));
    if (AtOperator("(")) Arguments(*filter);
    return filter;
  }

  // The filters of a block; the innermost works on null, which stands for the block's text.
  ExpressionPtr Filters(ExpressionPtr node) {
    while (AtOperator("|")) node = OneFilter(std::move(node));
    return node;
  }

  ExpressionPtr Test(ExpressionPtr node) {
    const bool negated = SkipName("not");
    Mutable test = Make(ExpressionKind::kTest);
    test->name = TakeName();
    Adopt(*test, std::move(node));
    const TokenKind kind = Current().kind;
    if (AtOperator("(")) {
      Arguments(*test);
    } else if (AtOperator("[") || AtOperator("{") || kind == TokenKind::kString || kind == TokenKind::kInteger ||
               kind == TokenKind::kFloat ||
               (kind == TokenKind::kName && !AtAnyName({"else", "or", "and", "is", "if", "not", "in", "recursive"}))) {
      Adopt(*test, Postfix(Primary()));
    }
    if (!negated) return test;
    Mutable node_not = Make(ExpressionKind::kUnary);
    node_not->name = "not";
    Adopt(*node_not, std::move(test));
    return node_not;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

Block Parse(std::string_view source) { return Parser(Tokenize(source)).Template(); }

}  // namespace millrace::recipe::jinja
