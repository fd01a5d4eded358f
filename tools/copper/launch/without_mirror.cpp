#include "tools/copper/launch/without_mirror.hpp"

#include <unistd.h>

#include <iostream>

#include "base/host_name.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/nodes/node_list.hpp"
#include "tools/copper/stop/cleanup.hpp"

namespace copper::cli {

namespace {

InstanceRecord record_for(const Plan& plan, const std::string& mount) {
    return {.mount = mount,
            .user = ::geteuid(),
            .job = plan.daemon.job,
            .batch_job = plan.daemon.batch_job,
            .batch_run = plan.daemon.batch_run,
            .launch = plan.daemon.launch,
            .nodes = static_cast<std::uint32_t>(plan.nodes()),
            .run_everywhere = plan.daemon.run_everywhere,
            .without_mirror = true};
}

Result<void> leave(const InstanceRecord& record) {
    auto instance = Instance::claim(record, private_directory(::geteuid()));
    if (!instance) {
        return failed(instance.error());
    }
    instance->abandon();
    return {};
}

void tell_if_failed(const std::string& host, const Result<void>& done) {
    if (!done) {
        say("'copper run' will fail on " + host + ": " + done.error().reason);
    }
}

}  // namespace

void note_without_mirror(const Plan& plan, const std::vector<Trouble>& nodes) {
    if (nodes.empty()) {
        return;
    }
    const auto is_missing = [named = hosts_of(nodes)](const std::string& host) {
        return hosts_without({host}, named).empty();
    };
    if (plan.placement.on_this_machine != 0) {
        for (const auto& mount : plan.mounts) {
            if (!find_live_instance(::geteuid(), mount)) {
                tell_if_failed(mount, leave(record_for(plan, mount)));
            }
        }
        return;
    }
    const auto record = record_for(plan, plan.daemon.mount);
    if (is_missing(host_name())) {
        tell_if_failed(host_name(), leave(record));
    }
    std::vector<std::string> others;
    for (const auto& host : hosts_without(plan.placement.hosts, {host_name()})) {
        if (is_missing(host)) {
            others.push_back(host);
        }
    }
    for (const auto& node : plan.left_out) {
        if (node.answers && !hosts_without({node.host}, {host_name()}).empty()) {
            others.push_back(node.host);
        }
    }
    for (const auto& trouble : run_on_hosts(
             plan.launcher, others, {own_program(), std::string(without_mirror_command), to_text(record)})) {
        tell_if_failed(trouble.host, failed(trouble.reason));
    }
}

int run_without_mirror(const std::string& text) {
    const auto record = parse_instance_record(text);
    if (!record) {
        say("no record: " + text);
        return exit_usage;
    }
    const auto report = clean_own({.mount = record->mount, .launch = record->launch});
    const auto left = report.problems.empty() ? leave(*record) : failed(report.problems.front());
    if (!left) {
        say(left.error().reason);
        return left.error().exit_code;
    }
    std::cout << done_prefix << host_name() << std::endl;
    return exit_done;
}

}  // namespace copper::cli
