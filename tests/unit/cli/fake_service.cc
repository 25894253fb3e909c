// Stands for any service under a supervisor: writes a ready file, answers /statusz, ends on SIGTERM. A file
// FAKE_SERVICE_FOLDER/<name> says otherwise: "fail" exits with status 3 at once, "usage" refuses its flags, "deaf"
// ignores SIGTERM.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "common/base/event_loop.h"
#include "common/http/server.h"

namespace {

std::string Behaviour(const std::string& name) {
  const char* folder = std::getenv("FAKE_SERVICE_FOLDER");
  std::ifstream file(std::string(folder == nullptr ? "" : folder) + "/" + name);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const std::string behaviour = Behaviour(flags["--name"]);
  std::fprintf(stderr, "starting %s\n", flags["--name"].c_str());
  if (behaviour == "fail") return 3;
  if (behaviour == "usage") {
    std::fprintf(stderr, "--kv-memory: 'zzz' is not a size\n");
    return 2;
  }

  millrace::EventLoop loop("handler");
  millrace::http::ServerOptions options;
  options.port = static_cast<uint16_t>(std::stoi(flags["--admin-port"]));
  auto server = millrace::http::Server::Listen(
      options, loop, [](millrace::http::Request, std::unique_ptr<millrace::http::Responder> responder) {
        responder->Send(200, {}, R"({"ready": true, "phase": "ready"})");
      });
  if (!server.ok()) return 1;
  const std::string port = std::to_string((*server)->port());
  {
    std::ofstream file(flags["--ready-file"] + ".tmp");
    file << "{\"pid\": " << getpid() << ", \"stage\": \"serving\", \"incarnation\": \"1\", \"admin_port\": " << port
         << ", \"grpc_port\": " << port << ", \"http_port\": " << port << "}";
  }
  std::rename((flags["--ready-file"] + ".tmp").c_str(), flags["--ready-file"].c_str());
  int signal_number = 0;
  do {
    sigwait(&signals, &signal_number);
  } while (behaviour == "deaf");
  (*server)->Stop();
  return 0;
}
