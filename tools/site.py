"""The docs site's hooks (mkdocs.yml): pages that lie outside of docs/, and the reference.

The README is the first page, and links to what lies outside of docs/ are made to fit the site.  The
reference is a page per group of public names, which mkdocstrings fills from stubs and sources.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = {"README.md": "index.md"}  # and where it is in the site, if elsewhere
GROUPS = {
    "compile": (
        "Compile, save, load",
        "compile spec load save show parse Graph Program Loaded LoadedGraph Array "
        "custom_op device colocate name profile bisect view why to_device register_pytree",
    ),
    "transforms": (
        "Transforms",
        "grad value_and_grad vjp jvp jacobian hessian vmap psum pmean pmax pmin "
        "all_gather axis_index gradients "
        "gradient_report precision_report stop_gradient checkpoint custom_grad cond switch scan "
        "fori while_loop map print assert_ callback",
    ),
    "state": (
        "State",
        "Variable variables container reset_container Session Model Callback "
        "History EarlyStopping CSVLogger LearningRateLogger Checkpoints save_checkpoint "
        "load_checkpoint quantize fake_quantize",
    ),
}
MODULES = {
    "nn": "graphc.learn.nn",
    "optim": "graphc.learn.optim",
    "data": "graphc.learn.data",
    "parallel": "graphc.learn.parallel",
    "cluster": "graphc.cluster",
    "linalg": "graphc.linalg",
    "random": "graphc.random",
    "sparse": "graphc.sparse",
    "errors": "graphc.errors",
}


def homes(stub: str) -> dict[str, str]:
    """Names of a stub and where they are documented: where they are imported from, or there."""
    found: dict[str, str] = {}
    module = "graphc" if stub == "__init__.pyi" else f"graphc.{stub.partition('.')[0]}"
    for node in ast.parse((ROOT / "graphc" / stub).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = f"{module}.{node.name}"
    return found


def entries(names: list[str]) -> str:
    return "".join(f"\n\n::: {name}" for name in names) + "\n"


def module_entries(title: str, module: str, listed: dict[str, str]) -> list[str]:
    """The public names of a module: where the stubs say they are."""
    made = importlib.import_module(module)
    if title == "errors":
        return [home for home in listed.values() if home.startswith("graphc.errors.")]
    if title in ("linalg", "random"):
        listed = homes(f"{title}.pyi")
    elif title == "nn":
        listed = listed | homes("learn/nn/__init__.pyi")
    else:
        return [f"{module}.{name}" for name in sorted(made.__all__)]
    return [listed[name] for name in sorted(made.__all__) if name in listed]


def reference() -> dict[str, str]:
    """The pages of the reference by file name."""
    where, pages, listed = homes("__init__.pyi"), {}, {*MODULES, "numpy"}
    for title, (heading, names) in GROUPS.items():
        pages[title] = f"# {heading}" + entries([where[name] for name in names.split()])
        listed |= set(names.split())
    for title, module in MODULES.items():
        found = module_entries(title, module, where)
        pages[title] = f"# {'Errors' if title == 'errors' else f'gc.{title}'}" + entries(found)
        listed |= {name for name, home in where.items() if home in found and title == "errors"}
    rest = [
        where[name]
        for name in sorted(where.keys() - listed)
        if re.fullmatch(r"graphc\.\w+", where[name])
    ]
    pages["functions"] = "# Functions" + entries(rest)
    return {f"reference/{title}.md": text for title, text in pages.items()}


def outside() -> dict[str, Path]:
    """Pages of the site that lie elsewhere: where they are in the site, and their files."""
    paths = [*ROOT.glob("*.md"), *sorted((ROOT / "benchmarks/results").glob("*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return {OUTSIDE.get(name, name): path for name, path in zip(names, paths)}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for name, text in reference().items():
        files.append(File.generated(config, name, content=text))
    for name, path in outside().items():
        text = path.read_text().replace("](docs/", "](").replace("](../docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links from docs/ to files outside of it lead to the pages made above."""
    up = "../" * page.file.src_uri.count("/")
    for name, path in outside().items():
        link = re.escape(path.relative_to(ROOT).as_posix())
        markdown = re.sub(rf"\]\((?:\.\./)+{link}", f"]({up}{name}", markdown)
    return markdown
