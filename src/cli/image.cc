// sandbox image pull, ls, rm: what is kept on disk to start from.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/words.h"
#include "image/store.h"
#include "store/home.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kPullManual = R"(sandbox image pull [--rebuild] IMAGE...

Fetch images, or look for newer ones. run fetches what is missing by itself; pull always asks.

  sandbox image pull debian:bookworm-slim
  sandbox image pull ghcr.io/org/tool@sha256:0123...
  sandbox image pull oci:./layout:latest             an OCI layout on this machine
  sandbox image pull --rebuild builtin               make the built-in image anew

IMAGE is written as for docker; private ones use what 'docker login' stored. Registries on this
machine (localhost:5000/name) are asked by plain http.

  --rebuild   make the built-in image even when it is here; other images are not affected
)";

constexpr std::string_view kLsManual = R"(sandbox image ls [--json]

The images that are here: name, id as docker shows it, room on this machine's disk, when it was made.

  sandbox image ls
  sandbox image ls --json

  --json      for programs: one JSON array
)";

constexpr std::string_view kRmManual = R"(sandbox image rm IMAGE...

Remove images by name or by the start of their id. One that a running sandbox uses stays.

  sandbox image rm debian:bookworm-slim
  sandbox image rm 3f2a91c04b17
)";

constexpr size_t kIdShown = 12;

std::string short_id(const std::string& id) {
  return id.substr(id.find(':') + 1, kIdShown);
}

Result<ImageStore> open_store() {
  ASSIGN(const Home home, Home::open());
  return ImageStore::open(home);
}

int run_pull(std::vector<std::string> args) {
  CLI::App app;
  bool rebuild = false;
  std::vector<std::string> references;
  app.add_flag("--rebuild", rebuild);
  app.add_option("IMAGE", references)->required();
  if (const auto status = parse_words(app, "image pull", std::move(args)); !status)
    return fail_with(status.error(), kUsage);
  auto store = open_store();
  if (!store) return fail_with(store.error(), kFailed);
  for (const std::string& reference : references) {
    auto progress = make_progress();
    const auto image = reference == kBuiltinImage ? store->ensure_builtin(*progress, rebuild)
                                                  : store->pull(reference, *progress);
    progress.reset();
    if (!image)
      return fail_with(image.error(),
                       image.error().code == Code::kCancelled ? kInterrupted : kFailed);
    fmt::print("{}  {}\n", image->reference, short_id(image->id));
  }
  return kDone;
}

void print_table(const std::vector<Image>& images) {
  size_t width = std::string_view("REFERENCE").size();
  for (const Image& image : images) width = std::max(width, image.reference.size());
  fmt::print("{:<{}}  {:<12}  {:>9}  CREATED\n", "REFERENCE", width, "ID", "SIZE");
  for (const Image& image : images)
    fmt::print("{:<{}}  {:<12}  {:>9}  {}\n", escape_terminal(image.reference), width,
               short_id(image.id), format_size(image.disk_bytes), format_local(image.created_ns));
}

void print_json(const std::vector<Image>& images) {
  nlohmann::json list = nlohmann::json::array();
  for (const Image& image : images)
    list.push_back({{"reference", image.reference},
                    {"id", image.id},
                    {"size", image.disk_bytes},
                    {"created", format_rfc3339(image.created_ns)},
                    {"disk", image.disk_path}});
  fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run_ls(std::vector<std::string> args) {
  CLI::App app;
  bool json = false;
  app.add_flag("--json", json);
  if (const auto status = parse_words(app, "image ls", std::move(args)); !status)
    return fail_with(status.error(), kUsage);
  const auto store = open_store();
  if (!store) return fail_with(store.error(), kFailed);
  const auto images = store->list();
  if (!images) return fail_with(images.error(), kFailed);
  if (json) {
    print_json(*images);
  } else {
    print_table(*images);
  }
  return kDone;
}

int run_rm(std::vector<std::string> args) {
  CLI::App app;
  std::vector<std::string> names;
  app.add_option("IMAGE", names)->required();
  if (const auto status = parse_words(app, "image rm", std::move(args)); !status)
    return fail_with(status.error(), kUsage);
  auto store = open_store();
  if (!store) return fail_with(store.error(), kFailed);
  for (const std::string& name : names) {
    const auto freed = store->remove(name);
    if (!freed) return fail_with(freed.error(), kFailed);
    fmt::print("removed {}, {} freed\n", escape_terminal(name), format_size(*freed));
  }
  return kDone;
}

}  // namespace

extern const Command kImagePull;
const Command kImagePull{"image pull", "fetch an image, or make the built-in one", kPullManual,
                         run_pull};
extern const Command kImageLs;
const Command kImageLs{"image ls", "the images that are here", kLsManual, run_ls};
extern const Command kImageRm;
const Command kImageRm{"image rm", "remove an image", kRmManual, run_rm};

}  // namespace sandbox::cli
