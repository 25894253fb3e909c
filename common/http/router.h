#pragma once
// Finds the handler of a request by exact path, or by path prefix for routes that end in "/*". Unknown paths get 404,
// unknown methods 405 with Allow, OPTIONS 204 with Allow; HEAD runs the GET handler (the server drops the body). Built
// once, then used on one executor.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/message.h"
#include "common/http/server.h"

namespace millrace::http {

class Router {
 public:
  explicit Router(ErrorRenderer render_error = PlainTextError) : render_error_(std::move(render_error)) {}

  // `path` is "/v1/models" or "/v1/models/*". The longest match wins.
  void Add(std::string method, std::string path, Handler handler);
  void Handle(Request request, std::unique_ptr<Responder> responder) const;

 private:
  using Methods = std::map<std::string, Handler>;
  const Methods* Find(std::string_view path) const;

  ErrorRenderer render_error_;
  std::map<std::string, Methods, std::less<>> exact_;
  std::map<std::string, Methods, std::less<>> prefixes_;  // keyed without the '*'
};

}  // namespace millrace::http
