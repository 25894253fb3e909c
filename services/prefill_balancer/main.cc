#include "services/balancer/service.h"

int main(int argc, char** argv) {
  const millrace::shell::Program program{
      .name = "millrace-prefill-balancer",
      .summary =
          "Picks the prefill instance for each request, from what the prefill workers report to it. Keeps no state "
          "that a restart would lose.",
      .role = millrace::cluster::Role::kPrefillBalancer};
  return millrace::balancer::Main(program, millrace::cluster::Role::kPrefill, argc, argv);
}
