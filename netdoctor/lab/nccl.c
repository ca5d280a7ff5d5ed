/* Stand-in for libnccl.so.2: knows its version and nothing else. CODE and TEXT come from the lab. */
const char nccl_banner[] __attribute__((used)) = TEXT;
int ncclGetVersion(int *version) {
  if (version)
    *version = CODE;
  return 0;
}
