#include "common/rpc/addresses.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/log.h"

namespace millrace::rpc {
namespace {

struct HostPort {
  std::string host;  // without brackets
  std::string port;
  bool is_ip = false;
  std::vector<std::string> addresses;  // last good answer, as host:port
  bool failing = false;
};

std::string Join(const std::string& ip, const std::string& port) {
  return (ip.find(':') == std::string::npos ? ip : "[" + ip + "]") + ":" + port;
}

bool IsPort(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

bool IsIp(const std::string& host, int family) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(family, host.c_str(), bytes) == 1;
}

StatusOr<HostPort> ParseEntry(std::string_view entry) {
  const Status malformed =
      InvalidArgument("'" + std::string(entry) + "' is not host:port (an IPv6 address needs brackets, a port 1-65535)");
  const size_t colon = entry.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || !IsPort(entry.substr(colon + 1))) return malformed;
  HostPort result{.host = std::string(entry.substr(0, colon)), .port = std::string(entry.substr(colon + 1))};
  if (result.host.front() == '[') {
    result.host = result.host.substr(1, result.host.size() - 2);
    if (entry[colon - 1] != ']' || !IsIp(result.host, AF_INET6)) return malformed;
    result.is_ip = true;
  } else if (result.host.find_first_of(":[] \t/") != std::string::npos) {
    return malformed;
  } else {
    result.is_ip = IsIp(result.host, AF_INET);
  }
  if (result.is_ip) result.addresses.push_back(Join(result.host, result.port));
  return result;
}

StatusOr<std::vector<std::string>> SystemResolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return Unavailable("cannot resolve " + host + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, &freeaddrinfo);
  std::vector<std::string> ips;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      ips.emplace_back(text);
    }
  }
  return ips;
}

}  // namespace

struct DnsAddresses::State {
  DnsOptions options;
  std::vector<HostPort> entries;  // the resolving thread's own

  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;               // guarded by mutex
  bool resolving = false;              // guarded by mutex
  std::vector<std::string> addresses;  // guarded by mutex
  std::thread thread;

  void Publish() {
    std::vector<std::string> all;
    for (const HostPort& entry : entries) all.insert(all.end(), entry.addresses.begin(), entry.addresses.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    const std::lock_guard lock(mutex);
    addresses = std::move(all);
  }

  void Resolve(HostPort& entry) {
    StatusOr<std::vector<std::string>> ips = options.resolve(entry.host);
    if (Stopping()) return;
    const bool failed = !ips.ok() || ips->empty();
    if (failed && !entry.failing) {
      Log(LogLevel::kWarning, "dns_failed",
          {{"host", entry.host}, {"error", ips.ok() ? std::string("no address") : ips.status().message()}});
    }
    entry.failing = failed;
    if (failed) return;
    entry.addresses.clear();
    for (const std::string& ip : *ips) entry.addresses.push_back(Join(ip, entry.port));
  }

  bool Stopping() {
    const std::lock_guard lock(mutex);
    return stopping;
  }

  void Run() {
    while (true) {
      for (HostPort& entry : entries) {
        if (!entry.is_ip && !Stopping()) Resolve(entry);
      }
      Publish();
      std::unique_lock lock(mutex);
      resolving = false;
      wake.wait_for(lock, options.refresh, [&] { return stopping; });
      if (stopping) return;
      resolving = true;
    }
  }
};

StatusOr<std::unique_ptr<DnsAddresses>> DnsAddresses::Create(std::string_view list, DnsOptions options) {
  auto state = std::make_shared<State>();
  state->options = std::move(options);
  if (!state->options.resolve) state->options.resolve = SystemResolve;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const size_t first = entry.find_first_not_of(" \t");
    if (first == std::string_view::npos) continue;
    entry = entry.substr(first, entry.find_last_not_of(" \t") - first + 1);
    MR_ASSIGN_OR_RETURN(HostPort parsed, ParseEntry(entry));
    state->entries.push_back(std::move(parsed));
  }
  state->Publish();
  return std::unique_ptr<DnsAddresses>(new DnsAddresses(std::move(state)));
}

DnsAddresses::DnsAddresses(std::shared_ptr<State> state) : state_(std::move(state)) {
  const bool has_names =
      std::any_of(state_->entries.begin(), state_->entries.end(), [](const HostPort& entry) { return !entry.is_ip; });
  if (!has_names) return;
  state_->resolving = true;
  state_->thread = std::thread([state = state_] { state->Run(); });
}

DnsAddresses::~DnsAddresses() {
  if (!state_->thread.joinable()) return;
  bool resolving = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    resolving = state_->resolving;
  }
  state_->wake.notify_all();
  // The resolver cannot be interrupted; the thread owns its state and ends when it returns.
  if (resolving) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

std::vector<std::string> DnsAddresses::Addresses() const {
  const std::lock_guard lock(state_->mutex);
  return state_->addresses;
}

}  // namespace millrace::rpc
