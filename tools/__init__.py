"""What writes files of the project: type stubs, the picture of the architecture, the docs site."""
