"""The OFA model in PyTorch: for export, for training the demo, and as our own reference."""
