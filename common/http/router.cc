#include "common/http/router.h"

namespace millrace::http {

void Router::Add(std::string method, std::string path, Handler handler) {
  bool prefix = path.size() >= 2 && path.ends_with("/*");
  if (prefix) path.pop_back();
  auto& routes = prefix ? prefixes_ : exact_;
  routes[std::move(path)][std::move(method)] = std::move(handler);
}

const Router::Methods* Router::Find(std::string_view path) const {
  if (auto it = exact_.find(path); it != exact_.end()) return &it->second;
  const Methods* best = nullptr;  // keys ascend, so of several matching prefixes the longest comes last
  for (const auto& [prefix, methods] : prefixes_) {
    if (path.size() > prefix.size() && path.starts_with(prefix)) best = &methods;
  }
  return best;
}

void Router::Handle(Request request, std::unique_ptr<Responder> responder) const {
  const Methods* methods = Find(request.path);
  auto refuse = [&](int status, std::vector<Header> headers, const std::string& message) {
    ErrorBody error = render_error_(status, message);
    headers.push_back({"Content-Type", std::move(error.content_type)});
    responder->Send(status, std::move(headers), std::move(error.body));
  };
  if (methods == nullptr) return refuse(404, {}, "Unknown request URL. Check the path and the method.");
  auto it = methods->find(request.method);
  if (it == methods->end() && request.method == "HEAD") it = methods->find("GET");
  if (it != methods->end()) return it->second(std::move(request), std::move(responder));

  std::string allow;
  for (const auto& [method, handler] : *methods) {
    allow += allow.empty() ? "" : ", ";
    allow += method == "GET" ? "GET, HEAD" : method;
  }
  allow += ", OPTIONS";
  if (request.method == "OPTIONS") return responder->Send(204, {{"Allow", allow}}, "");
  refuse(405, {{"Allow", allow}}, "Method not allowed. Allowed: " + allow + ".");
}

}  // namespace millrace::http
