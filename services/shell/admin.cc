#include "services/shell/admin.h"

#include <utility>

#include "common/http/router.h"

namespace millrace::shell {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

void Answer(http::Responder& responder, int status, const std::string& type, std::string body) {
  responder.Send(status, {{"Content-Type", type}, {"Cache-Control", "no-store"}}, std::move(body));
}

}  // namespace

StatusOr<std::unique_ptr<http::Server>> StartAdminServer(const std::string& host, uint16_t port, Executor& control,
                                                         AdminSources sources) {
  http::Router router;
  router.Add("GET", "/healthz",
             [](http::Request, std::unique_ptr<http::Responder> responder) { Answer(*responder, 200, kText, "ok\n"); });
  router.Add("GET", "/readyz", [sources](http::Request, std::unique_ptr<http::Responder> responder) {
    const bool ready = sources.ready();
    Answer(*responder, ready ? 200 : 503, kText, ready ? "ready\n" : "not ready: " + sources.phase() + "\n");
  });
  router.Add("GET", "/metrics", [sources](http::Request, std::unique_ptr<http::Responder> responder) {
    Answer(*responder, 200, "text/plain; version=0.0.4; charset=utf-8", sources.metrics());
  });
  router.Add("GET", "/statusz", [sources](http::Request, std::unique_ptr<http::Responder> responder) {
    Answer(*responder, 200, "application/json", sources.status_json());
  });
  http::ServerOptions options;
  options.host = host;
  options.port = port;
  options.max_connections = 256;
  options.max_body_bytes = 64 * 1024;
  return http::Server::Listen(
      std::move(options), control,
      [router = std::move(router)](http::Request request, std::unique_ptr<http::Responder> responder) {
        router.Handle(std::move(request), std::move(responder));
      });
}

}  // namespace millrace::shell
