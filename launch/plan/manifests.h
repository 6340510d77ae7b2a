// What `tpsim plan --write DIR` leaves behind: files that start the proposed setting.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "launch/report/report_dir.h"
#include "launch/simulation/launch_line.h"

namespace tpsim::launch {

// A Compose file of one host: a service for each server, with GPUs of its own, and one for the router.
nlohmann::ordered_json compose_file(const ContainerCommands& commands, const std::string& image);
// The objects of a Kubernetes manifest: a Deployment and a Service of the only server; or a StatefulSet of
// all with a headless Service, and a Deployment and a Service of the router.
std::vector<nlohmann::ordered_json> kubernetes_objects(const ContainerCommands& commands,
                                                       const std::string& image);
// `json` in block style. Strings that YAML could read as anything else are quoted.
std::string to_yaml(const nlohmann::ordered_json& json);
// A shell script with these commands; of several it carries out the one whose number it is given.
std::string launch_script(const std::vector<std::string>& commands);

// Throws UserError where the folder has a file of one of the names: nobody's are overwritten.
void refuse_existing_manifests(const ReportDir& folder);
// launch.sh, and of servers that are alike compose.yaml (where one host holds all) and kubernetes.yaml; a
// line that says so. Throws UserError where they cannot be written; none is there then.
std::string write_manifests(const ServerArgs& args, ReportDir& folder);

}  // namespace tpsim::launch
