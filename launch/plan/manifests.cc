#include "launch/plan/manifests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kScript = "launch.sh", kCompose = "compose.yaml", kKubernetes = "kubernetes.yaml";
constexpr std::array kNames = {kScript, kCompose, kKubernetes};
constexpr std::string_view kMadeBy = "# Written by `tpsim plan --write`.\n";

// Where Hugging Face's tools in SGLang's image, whose user is root, look for models.
constexpr std::string_view kCacheInImage = "/root/.cache/huggingface";
// A server downloads and loads weights, and captures its graphs, before it is healthy.
constexpr std::uint32_t kStartMinutes = 60;
constexpr std::uint32_t kProbeSeconds = 10;

bool is_plain(const std::string& text) {
  constexpr std::string_view kWordsOfYaml[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  if (text.empty() || std::ranges::find(kWordsOfYaml, to_lower(text)) != std::end(kWordsOfYaml)) return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const std::size_t start = text.find_first_not_of("-/");
  return start < 3 && letter(text[start]) && std::ranges::all_of(text, [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/';
         });
}

std::string scalar(const Json& json) {
  if (!json.is_string()) return json.dump();
  const std::string text = json.get<std::string>();
  return is_plain(text) ? text : json.dump();  // a string of JSON is one of YAML
}

void write(const Json& json, std::size_t indent, std::string& out) {
  const std::string margin(indent, ' ');
  for (const auto& [key, value] : json.items()) {
    const bool nested = value.is_structured() && !value.empty();
    if (json.is_object()) {
      out += margin + scalar(key) + ":";
      out += nested ? "\n" : " " + scalar(value) + "\n";
      if (nested) write(value, indent + 2, out);
    } else if (nested) {
      std::string inner;
      write(value, indent + 2, inner);
      inner[indent] = '-';
      out += inner;
    } else {
      out += margin + "- " + scalar(value) + "\n";
    }
  }
}

// The folder of the weights, where --model-path names one: containers find it at the same place.
std::string model_folder(const LaunchCommand& server) {
  const auto flag = std::ranges::find(server.words, "--model-path");
  std::error_code error;
  if (flag == server.words.end() || flag + 1 == server.words.end() ||
      !std::filesystem::exists(flag[1], error))
    return "";
  return std::filesystem::absolute(flag[1]).lexically_normal().string();
}

std::vector<std::string> words_in_container(const LaunchCommand& command) {
  std::vector<std::string> words = command.words;
  const std::string folder = model_folder(command);
  const auto flag = std::ranges::find(words, "--model-path");
  if (!folder.empty()) flag[1] = folder;
  return words;
}

Json compose_service(const LaunchCommand& command, const std::string& image) {
  Json words = Json::array();
  for (const std::string& word : words_in_container(command)) {
    std::string escaped;  // Compose puts variables in
    for (const char c : word) escaped += c == '$' ? "$$" : std::string(1, c);
    words.push_back(escaped);
  }
  return {{"image", image}, {"command", std::move(words)}, {"restart", "unless-stopped"}};
}

Json labels(std::string_view name) { return {{"app.kubernetes.io/name", name}}; }

Json port() { return {{"name", "http"}, {"containerPort", kContainerPort}}; }

Json container(std::string_view name, const LaunchCommand& command, const std::string& image) {
  const Json health = {{"httpGet", {{"path", "/health"}, {"port", "http"}}},
                       {"periodSeconds", kProbeSeconds}};
  Json starts = health;
  starts["failureThreshold"] = kStartMinutes * 60 / kProbeSeconds;
  Json out = {{"name", name},
              {"image", image},
              {"command", words_in_container(command)},
              {"ports", Json::array({port()})},
              {"startupProbe", std::move(starts)},
              {"readinessProbe", health}};
  Json environment = Json::array();
  for (const auto& [variable, value] : command.environment)
    environment.push_back({{"name", variable}, {"value", value}});
  if (!environment.empty()) out["env"] = std::move(environment);
  return out;
}

Json pod_of(Json container, Json volumes = nullptr) {
  // Links would be variables such as SGLANG_SERVER_PORT, among those that SGLang reads.
  Json pod = {{"enableServiceLinks", false}, {"containers", Json::array({std::move(container)})}};
  if (!volumes.is_null()) pod["volumes"] = std::move(volumes);
  return pod;
}

Json server_pod(const ContainerCommands& commands, const std::string& image) {
  Json server = container("server", commands.server, image);
  // A token for models that need one: kubectl create secret generic hf-token --from-literal=token=…
  if (!server.contains("env")) server["env"] = Json::array();
  server["env"].push_back(
      {{"name", "HF_TOKEN"},
       {"valueFrom", {{"secretKeyRef", {{"name", "hf-token"}, {"key", "token"}, {"optional", true}}}}}});
  server["resources"] = {{"limits", {{"nvidia.com/gpu", commands.gpus}}}};
  server["volumeMounts"] = {{{"name", "cache"}, {"mountPath", kCacheInImage}},
                            {{"name", "shm"}, {"mountPath", "/dev/shm"}}};
  Json volumes = {
      {{"name", "cache"}, {"hostPath", {{"path", kCacheInImage}, {"type", "DirectoryOrCreate"}}}},
      {{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}}};  // NCCL's, more than the 64 MiB of containers
  if (const std::string folder = model_folder(commands.server); !folder.empty()) {
    server["volumeMounts"].push_back({{"name", "model"}, {"mountPath", folder}, {"readOnly", true}});
    volumes.push_back({{"name", "model"}, {"hostPath", {{"path", folder}, {"type", "Directory"}}}});
  }
  return pod_of(std::move(server), std::move(volumes));
}

Json workload(std::string_view kind, std::string_view name, std::uint32_t replicas, Json pod) {
  return {{"apiVersion", "apps/v1"},
          {"kind", kind},
          {"metadata", {{"name", name}, {"labels", labels(name)}}},
          {"spec",
           {{"replicas", replicas},
            {"selector", {{"matchLabels", labels(name)}}},
            {"template", {{"metadata", {{"labels", labels(name)}}}, {"spec", std::move(pod)}}}}}};
}

Json service(std::string_view name) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", {{"name", name}, {"labels", labels(name)}}},
          {"spec",
           {{"selector", labels(name)},
            {"ports", Json::array({{{"name", "http"}, {"port", kContainerPort}, {"targetPort", "http"}}})}}}};
}

}  // namespace

Json compose_file(const ContainerCommands& commands, const std::string& image) {
  Json services = Json::object();
  LaunchCommand router = commands.router;
  const bool routed = !router.words.empty();
  const std::string published = fmt::format("{0}:{0}", kContainerPort);
  Json healthy = Json::object();
  for (std::uint32_t i = 0; i < commands.replicas; ++i) {
    const std::string name = routed ? fmt::format("server-{}", i) : "server";
    Json server = compose_service(commands.server, image);
    server["environment"]["HF_TOKEN"] = "${HF_TOKEN:-}";
    for (const auto& [variable, value] : commands.server.environment) server["environment"][variable] = value;
    server["volumes"] = Json::array({fmt::format("${{HOME}}/.cache/huggingface:{}", kCacheInImage)});
    if (const std::string folder = model_folder(commands.server); !folder.empty())
      server["volumes"].push_back(fmt::format("{0}:{0}:ro", folder));
    server["ipc"] = "host";  // NCCL's shared memory, and limits for what it pins
    server["ulimits"] = {{"memlock", -1}, {"stack", 67108864}};
    if (!routed) server["ports"] = Json::array({published});
    server["healthcheck"] = {
        {"test",
         {"CMD", "curl", "--fail", "--silent", fmt::format("http://localhost:{}/health", kContainerPort)}},
        {"interval", fmt::format("{}s", kProbeSeconds)},
        {"start_period", fmt::format("{}m", kStartMinutes)}};
    Json devices = Json::array();
    for (std::uint32_t gpu = 0; gpu < commands.gpus; ++gpu)
      devices.push_back(std::to_string(i * commands.gpus + gpu));
    server["deploy"]["resources"]["reservations"]["devices"] = Json::array(
        {{{"driver", "nvidia"}, {"device_ids", std::move(devices)}, {"capabilities", Json::array({"gpu"})}}});
    services[name] = std::move(server);
    healthy[name] = {{"condition", "service_healthy"}};
    router.words.push_back(fmt::format("http://{}:{}", name, kContainerPort));
  }
  if (routed) {
    Json service = compose_service(router, image);
    service["ports"] = Json::array({published});
    service["depends_on"] = std::move(healthy);
    services["router"] = std::move(service);
  }
  return {{"services", std::move(services)}};
}

std::vector<Json> kubernetes_objects(const ContainerCommands& commands, const std::string& image) {
  const std::string server = "sglang-server", front = "sglang-router";
  Json pod = server_pod(commands, image);
  if (commands.router.words.empty()) {
    Json deployment = workload("Deployment", server, 1, std::move(pod));
    deployment["spec"]["strategy"] = {{"type", "Recreate"}};  // there are no GPUs for two at once
    return {std::move(deployment), service(server)};
  }
  Json servers = workload("StatefulSet", server, commands.replicas, std::move(pod));
  servers["spec"]["serviceName"] = server;
  servers["spec"]["podManagementPolicy"] = "Parallel";
  Json names = service(server);
  names["spec"]["clusterIP"] = "None";
  names["spec"]["publishNotReadyAddresses"] = true;  // the router waits for them by name
  LaunchCommand router = commands.router;
  for (std::uint32_t i = 0; i < commands.replicas; ++i)
    router.words.push_back(fmt::format("http://{0}-{1}.{0}:{2}", server, i, kContainerPort));
  Json routes = pod_of(container("router", router, image));
  return {std::move(servers), std::move(names), workload("Deployment", front, 1, std::move(routes)),
          service(front)};
}

std::string to_yaml(const Json& json) {
  std::string out;
  write(json, 0, out);
  return out;
}

std::string launch_script(const std::vector<std::string>& commands) {
  std::string out = "#!/bin/sh\n" + std::string(kMadeBy);
  if (commands.size() == 1) return out + "exec env " + commands.front() + "\n";
  const bool routed = commands.back().find("--node-rank") == std::string::npos;
  out += routed ? "# Each command is of the host that it names; the last one is the router's.\n"
                : "# Each command is of one node, host1 is the first.\n";
  out += "case \"$1\" in\n";
  for (std::size_t i = 0; i < commands.size(); ++i)
    out += fmt::format("{})\n  exec env {}\n  ;;\n", i + 1, commands[i]);
  return out + fmt::format("*)\n  echo \"usage: $0 1..{}\" >&2\n  exit 2\n  ;;\nesac\n", commands.size());
}

void refuse_existing_manifests(const ReportDir& folder) {
  for (const std::string_view name : kNames) {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(folder.path() / name, error)))
      throw_user_error(
          "--write {}: has a {} already, which is not overwritten; name another folder or move it",
          folder.path().string(), name);
  }
}

std::string write_manifests(const ServerArgs& args, ReportDir& folder) {
  refuse_existing_manifests(folder);
  const ContainerCommands commands = container_commands(args);
  // Tags of SGLang's images on Docker Hub are its releases.
  const std::string image = fmt::format("lmsysorg/sglang:v{}", args.sglang_release.name);
  std::vector<std::string> names = {std::string(kScript)};
  folder.open(names.back()).write(launch_script(launch_commands(args)));
  std::string note;
  const bool pairs = args.disaggregation.pd_disaggregation;
  if (pairs) {
    note = fmt::format("; no {} and {}, which are of servers that are all alike", kCompose, kKubernetes);
  } else if (commands.nodes > 1) {
    note = fmt::format("; no {} and {}, whose containers are of one host each", kCompose, kKubernetes);
  } else if (commands.replicas * commands.gpus <= commands.gpus_of_host) {
    names.emplace_back(kCompose);
    folder.open(names.back()).write(std::string(kMadeBy) + to_yaml(compose_file(commands, image)));
  } else {
    note = fmt::format("; no {}, which is of one host and its {} GPUs", kCompose, commands.gpus_of_host);
  }
  if (!pairs && commands.nodes == 1) {
    names.emplace_back(kKubernetes);
    std::string manifest(kMadeBy);
    for (const Json& object : kubernetes_objects(commands, image)) manifest += "---\n" + to_yaml(object);
    folder.open(names.back()).write(manifest);
  }
  folder.commit_all();
  using std::filesystem::perms;
  std::error_code error;  // without the permission `sh launch.sh` does the same
  std::filesystem::permissions(folder.path() / kScript,
                               perms::owner_exec | perms::group_exec | perms::others_exec,
                               std::filesystem::perm_options::add, error);
  return fmt::format("\nWritten to {}: {}{}\n", folder.path().string(), fmt::join(names, ", "), note);
}

}  // namespace tpsim::launch
