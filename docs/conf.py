"""The site: `make docs` builds it into docs/_build/html. Markdown through MyST, the API through autodoc."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

# The tutorials run in this process, on the CPU: what they print is the same everywhere then.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import kineticsim_env  # noqa: E402

project = "KineticSim-Env"
author = copyright = "The KineticSim-Env developers"
version = release = kineticsim_env.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinx_reredirects",
    "docstring_pages",
    "study_pages",
]
exclude_patterns = ["_build", "_ext", "tutorials"]
nitpicky = True
# The site is built without a network, so other projects' names are not links.
_OTHERS = "torch|jax|numpy|np|pandas|pathlib|Path|datetime|gymnasium|gym|pettingzoo|collections|typing|Any|optional"
nitpick_ignore_regex = [("py:.*", rf"({_OTHERS})\b.*")]
default_role = "py:name"
highlight_language = "text"

myst_heading_anchors = 4  # as GitHub makes them, so that page.md#heading works in both places

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autoclass_content = "both"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",  # made by the build, ignored by git
    "filename_pattern": r"\.py",  # all of them run
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "run_stale_examples": True,  # the package may have changed where a tutorial has not
    "reset_modules": ("matplotlib", "picture_style.apply"),
    "capture_repr": (),  # what is to be seen is printed
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
}

# Where pages that are no more lead to.
redirects = {
    "adverse_selection": "studies/adverse_selection.html",
    "attacks": "studies/attacks.html",
    "baselines": "studies/baselines.html",
    "calibration": "studies/calibration.html",
    "clearing": "studies/clearing.html",
    "continuous_learning": "studies/continuous_learning.html",
    "continuous_preset": "studies/presets.html#continuous",
    "default_market": "studies/presets.html#news",
    "execution": "studies/execution.html",
    "gallery/1_first_market": "1_start.html",
    "gallery/2_market_makers": "1_start.html",
    "gallery/4_sweeps_and_counterfactuals": "2_market_research.html",
    "gallery/5_your_own_trader": "4_your_own_trader.html",
    "many_learners": "multi_agent.html",
    "mechanisms": "studies/mechanisms.html",
    "own_environment": "custom_task.html",
    "policy_change": "studies/policy_change.html",
    "ppo_results": "studies/baselines.html",
    "prediction": "studies/prediction.html",
    "presets": "studies/presets.html",
    "price_impact": "studies/price_impact.html",
    "realistic": "studies/realistic.html",
    "rewards": "studies/rewards.html",
    "scorecard": "studies/scorecard.html",
    "self_play": "studies/self_play.html",
    "stylised_facts": "studies/stylised_facts.html",
    "traders": "studies/traders.html",
    "trading_preset": "studies/presets.html#trading",
    "trainers": "libraries.html",
    "your_own_trader": "custom_trader.html",
}

html_theme = "furo"
html_title = "KineticSim-Env"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"
