"""What NCCL, gloo and CUDA decide by themselves: pure, cited by file and release. No advice, no verdicts."""
