"""What writes files of the project: type stubs, pictures, the docs site."""
