// Runs a fuzz target over files and folders named on the command line, once each: the seed corpora
// as ordinary tests.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
        run_file(entry.path());
        ++count;
      }
    } else {
      run_file(argv[i]);
      ++count;
    }
  }
  if (count == 0) {
    std::fprintf(stderr, "no seed files given\n");
    return 1;
  }
  std::printf("%zu inputs\n", count);
  return 0;
}
