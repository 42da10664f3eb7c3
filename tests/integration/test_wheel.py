"""The built wheel: it is complete, and trains, translates and scores outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
FEW_UPDATES = (
    "training.max_updates=2",
    "training.checkpoint_every=2",
    "training.validate_every=2",
    "decoding.beam_size=1",
    "decoding.max_length_offset=1",
)


def run(
    *command: str | Path, cwd: Path, text: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command that must succeed; if it fails, the assertion shows its output."""
    done = subprocess.run(
        [os.fspath(part) for part in command],
        cwd=cwd,
        env=environment,
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the unpacked source distribution, which must be complete as well."""
    dist = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", dist, cwd=CHECKOUT)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
        archive.extractall(dist)
    source = dist / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist, cwd=source)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a fresh environment with the wheel and the packages of the current environment."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    paths = ("import sysconfig; print(sysconfig.get_path('purelib'))",)
    own = Path(run(python, "-c", *paths, cwd=folder).stdout.strip())
    # Python does not read .pth files in a folder that a .pth file adds, so the editable nmt stays hidden.
    borrowed = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    (own / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed), encoding="utf-8")
    return folder / "bin"


def test_the_wheel_holds_the_program_its_options_and_its_corpus(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    configs = {f"nmt/{path.relative_to(CHECKOUT)}" for path in CHECKOUT.glob("configs/**/*.yaml")}
    corpus = {f"nmt/quickstart/{path.name}" for path in CHECKOUT.glob("data/quickstart/*") if path.is_file()}
    modules = {str(path.relative_to(CHECKOUT)) for path in CHECKOUT.glob("nmt/**/*.py")}
    files = filter(Path.is_file, CHECKOUT.glob("nmt/**/templates/**/*"))
    templates = {str(path.relative_to(CHECKOUT)) for path in files}
    tables = {
        f"nmt/{name}" for name in ("options/suggestions.yaml", "cli/completion.bash", "cli/completion.zsh")
    }
    assert configs and corpus and modules and templates
    assert names >= configs | corpus | modules | templates | tables | {"nmt/py.typed"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    strays = {name for name in names if not name.startswith("nmt/") and ".dist-info/" not in name}
    assert not strays and not any("__pycache__" in name for name in names)


def test_it_trains_translates_and_scores_outside_the_checkout(
    installed: Path, tmp_path: Path, own_cache: Path
) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    python = (installed / "python", "-P", "-c")
    where = run(*python, "import nmt; print(nmt.__file__)", cwd=tmp_path, environment=environment).stdout
    assert Path(where.strip()).is_relative_to(installed.parent)

    trained = run(installed / "nmt-train", *FEW_UPDATES, cwd=tmp_path, environment=environment)
    assert trained.stdout
    assert (tmp_path / "runs" / "quickstart" / "model" / "model.safetensors").is_file()
    assert "</html>" in (tmp_path / "runs" / "quickstart" / "data_report.html").read_text(encoding="utf-8")

    model = "model_dir=runs/quickstart"
    lines = "The cat sleeps.\n\nA dog.\n"
    translated = run(installed / "nmt-translate", model, cwd=tmp_path, environment=environment, text=lines)
    assert translated.stdout.count("\n") == 3
    assert translated.stdout.split("\n")[1] == ""

    scored = run(installed / "nmt-eval", model, "split=valid", cwd=tmp_path, environment=environment)
    assert "\nBLEU|nrefs:1|case:mixed|" in scored.stdout
