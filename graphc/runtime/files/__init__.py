"""Files: .gcx, checkpoints, the safetensors format, all of them whole or refused."""
