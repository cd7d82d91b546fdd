"""For the reference: tables of fields with the comments beside them, and signatures of what users construct.

Read by griffe when mkdocs builds the pages (mkdocs.yml); nothing is imported from the package itself.
"""

import re

import griffe

COMMENT = re.compile(r"  # (.+)$")
SHAPED = re.compile(r"""(Float|Int)\d*\[Array, ['"]\s*(.*?)\s*['"]\]""")  # of jaxtyping
DESCRIBED = re.compile(r"^\s*(Args|Attributes):$", re.MULTILINE)


class Fields(griffe.Extension):
    """A table of fields for each public class, or, where its docstring describes arguments, their signature."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        """Complete every class of the package."""
        for module in _modules(pkg):
            for each in module.classes.values():
                if not each.is_alias and each.docstring:
                    _complete(pkg, each)


def _modules(module: griffe.Module):
    yield module
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from _modules(inner)


def _complete(package: griffe.Module, owner: griffe.Class) -> None:
    fields = [a for a in owner.attributes.values() if a.annotation is not None and not a.name.startswith("_")]
    if DESCRIBED.search(owner.docstring.value):
        if fields and "__init__" not in owner.members:
            owner.set_member("__init__", _constructor(owner, fields))
        return
    rows = [f"    {a.name}: {_description(package, owner, a)}" for a in fields]
    if rows:
        owner.docstring.value = "\n".join([owner.docstring.value.rstrip(), "", "Attributes:", *rows])
    for field in fields:
        if SHAPED.search(str(field.annotation)):
            field.annotation = SHAPED.sub(_shape, str(field.annotation))


def _shape(found: re.Match) -> str:
    """`Float[Array, "nb 3"]` as "float (nb, 3)"."""
    kind, sizes = found[1].lower(), found[2].split()
    return f"{kind} ({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def _description(package: griffe.Module, owner: griffe.Class, field: griffe.Attribute) -> str:
    """The docstring of a property, the comment beside a field, or what the field's own class says of itself."""
    if field.docstring:
        return field.docstring.value.partition("\n")[0]
    found = COMMENT.search(field.lines[-1]) if field.lines else None
    if found:
        return found[1]
    record = owner.module.members.get(str(field.annotation).strip("'\""))
    if record is not None and record.is_alias:
        within, _, rest = record.target_path.partition(".")
        record = package[rest] if within == package.name else None
    if record is not None and record.is_class and record.docstring:
        return record.docstring.value.partition("\n")[0]
    return "—"


def _constructor(owner: griffe.Class, fields: list) -> griffe.Function:
    """The `__init__` that Equinox makes of annotated fields."""
    kind = griffe.ParameterKind.positional_or_keyword
    given = [
        griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=_default(field.value))
        for field in fields
    ]
    parameters = griffe.Parameters(griffe.Parameter("self", kind=kind), *given)
    return griffe.Function("__init__", parameters=parameters, parent=owner)


def _default(value):
    """What a field is if left out: within `eqx.field(...)` the argument `default`."""
    if isinstance(value, griffe.ExprCall) and str(value.function).endswith("field"):
        named = {a.name: a.value for a in value.arguments if isinstance(a, griffe.ExprKeyword)}
        return named.get("default")
    return value
