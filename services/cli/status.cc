#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "services/cli/commands.h"
#include "services/cli/process_status.h"
#include "services/cli/state_folder.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

// What of a process's load the table shows; --json has all.
constexpr std::string_view kTableLoad[] = {"queued_requests", "running",         "free_blocks",
                                           "instances",       "waiting_picks",   "blocks",
                                           "disk_bytes",      "active_requests", "connections"};

struct Row {
  ProcessRecord record;
  bool running = false;
  ProcessStatus status;
};

std::vector<Row> Collect(const StateFolder& folder, const ClusterRecord& cluster) {
  std::vector<Row> rows;
  for (const ProcessRecord& record : cluster.processes) {
    Row row{record, IsAlive(record.process), {}};
    const StatusOr<ReadyRecord> ready = folder.ReadReady(record.name);
    if (row.running && ready.ok() && ready->pid == record.process.pid) {
      row.status = FetchStatus(cluster.host, ready->admin_port);
      // A process that does not answer still has the ports that it told.
      row.status.admin_port = ready->admin_port;
      row.status.grpc_port = ready->grpc_port;
      row.status.http_port = ready->http_port;
      row.status.incarnation = ready->incarnation;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string StateOf(const Row& row) {
  if (!row.running) return "stopped";
  if (!row.status.reachable) return row.status.admin_port == 0 ? "starting" : "no answer";
  return row.status.ready ? "ready" : row.status.phase;
}

Json RowJson(const Row& row) {
  Json load = Json::object();
  for (const auto& [key, value] : row.status.load) load[key] = Json::parse(value, nullptr, false);
  Json ports = {{"grpc", row.status.grpc_port}, {"admin", row.status.admin_port}};
  if (row.status.http_port != 0) ports["http"] = row.status.http_port;
  return {
      {"name", row.record.name},
      {"role", row.record.role},
      {"pid", row.record.process.pid == 0 ? Json(nullptr) : Json(row.record.process.pid)},  // null between two starts
      {"ports", std::move(ports)},
      {"ready", row.status.ready},
      {"state", StateOf(row)},
      {"incarnation", row.status.incarnation},
      {"restarts", row.record.restarts},
      {"load", std::move(load)}};
}

void PrintTable(const ClusterRecord& cluster, const std::vector<Row>& rows) {
  std::printf("endpoint %s   model %s   supervisor pid %d%s\n\n", cluster.endpoint.c_str(), cluster.model.c_str(),
              cluster.supervisor.pid, IsAlive(cluster.supervisor) ? "" : " (gone)");
  std::printf("%-20s %-17s %8s %-28s %-12s %-20s %8s  %s\n", "NAME", "ROLE", "PID", "PORTS", "STATE", "INCARNATION",
              "RESTARTS", "LOAD");
  for (const Row& row : rows) {
    std::string ports = std::to_string(row.status.grpc_port) + " admin " + std::to_string(row.status.admin_port);
    if (row.status.http_port != 0) ports = "http " + std::to_string(row.status.http_port) + " " + ports;
    std::string load;
    for (const auto& [key, value] : row.status.load) {
      if (std::find(std::begin(kTableLoad), std::end(kTableLoad), key) == std::end(kTableLoad)) continue;
      load += (load.empty() ? "" : " ") + key + "=" + value;
    }
    std::printf("%-20s %-17s %8d %-28s %-12s %-20s %8u  %s\n", row.record.name.c_str(), row.record.role.c_str(),
                row.record.process.pid, ports.c_str(), StateOf(row).c_str(), row.status.incarnation.c_str(),
                row.record.restarts, load.c_str());
  }
}

}  // namespace

int RunStatus(const std::vector<std::string>& arguments) {
  std::string name = "default";
  bool json = false;
  config::Schema schema(
      "millrace status", "[flags]",
      "Lists every process of a cluster of this machine. Exit status 0 when all are ready, 1 when not.");
  schema.Add("name", &name, {.help = "name of the cluster"});
  schema.Add("json", &json, {.help = "print JSON"});
  const ParsedCommand parsed = ParseCommand(schema, arguments);
  if (parsed.over) return parsed.exit_status;

  const StatusOr<StateFolder> folder = StateFolder::Locate(name);
  if (!folder.ok()) return Fail("status", folder.status());
  const StatusOr<ClusterRecord> cluster = folder->Read();
  if (!cluster.ok()) return Fail("status", cluster.status());
  const std::vector<Row> rows = Collect(*folder, *cluster);
  if (json) {
    Json processes = Json::array();
    for (const Row& row : rows) processes.push_back(RowJson(row));
    const Json out = {{"name", name},
                      {"endpoint", cluster->endpoint},
                      {"model", cluster->model},
                      {"supervisor", {{"pid", cluster->supervisor.pid}, {"running", IsAlive(cluster->supervisor)}}},
                      {"processes", std::move(processes)}};
    std::printf("%s\n", out.dump(2).c_str());
  } else {
    PrintTable(*cluster, rows);
  }
  const bool all = std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.status.ready; });
  return all ? 0 : 1;
}

}  // namespace millrace::cli
