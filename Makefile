# `make demo` trains a ranker and plots its results, in about a minute. `make test` runs the
# quick tests on the four backends, in five to twelve minutes on two cores, and `make test-all` runs
# all tests. Each command creates its environment. The environment of the tests has four gigabytes.

PYTHON ?= python3
ALL = jax numpy tensorflow torch
BACKEND ?= $(ALL)
DEVELOPMENT = .venv/development
DEMO = .venv/demo
DOCS = .venv/docs
OLDEST = .venv/oldest
NIGHTLY = .venv/nightly
TRACKERS = .venv/trackers
FOR_TPU = .venv/for-tpu
FOR_GPU = .venv/for-gpu

# Packages are compiled at their first import, not at their installation. If bytecode were not
# written, each process would compile Keras again, which takes seven seconds.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = pip install --quiet --no-compile

# Folders of the tests of a backend. Tests that do not depend on the backend run on NumPy only.
tests_on = $(if $(filter numpy,$1),tests,tests/contract tests/keras) keras_rank
# Tests that also run on the reference implementation, without the modules of the backends.
REFERENCE = $(addprefix tests/contract/,test_reference_backend.py \
	test_properties.py::test_function_equals_the_oracle \
	test_properties.py::test_class_equals_the_weighted_mean_of_the_oracle \
	test_properties.py::test_float64_keeps_its_precision \
	test_sparse_targets.py::test_many_targets test_long_lists.py::test_functions_equal_the_oracle \
	"test_special_scores.py::test_special_scores_count_as_plain_scores[5000-all-0.01-True]" \
	test_compiled.py::test_functions_compile test_compiled.py::test_one_trace_per_shape)

# Backends that compile with XLA.
COMPILED = jax tensorflow
# XLA compiles in half the time without its optimizer. Results are equal.
UNOPTIMIZED = XLA_FLAGS="--xla_backend_optimization_level=0 \
	--xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"

.PHONY: demo check test test-rest test-all test-oldest test-nightly test-trackers
.PHONY: test-compiled lint mutants docs pictures package bench bench-compiled clean
.PHONY: $(ALL:%=quick-%) $(ALL:%=rest-%) $(ALL:%=reference-%) $(COMPILED:%=optimized-%)

demo: $(DEMO)/installed
	$(DEMO)/bin/python examples/visual_search.py --backend jax

# Checks for daily work.
check: lint quick-numpy

# Two processes run at a time, in an order in which both end together. The linters start with the
# first tests: they import no packages, so only one process compiles packages.
test: $(DEVELOPMENT)/installed
	$(MAKE) --jobs=2 --output-sync=target lint $(BACKEND:%=quick-%)

# Tests that `make test` omits.
test-rest: $(DEVELOPMENT)/installed
	$(MAKE) --jobs=2 --output-sync=target $(BACKEND:%=rest-%) \
		$(addprefix optimized-,$(filter $(COMPILED),$(BACKEND))) \
		$(BACKEND:%=reference-%)

test-all:
	$(MAKE) test
	$(MAKE) test-rest

lint: $(DEVELOPMENT)/installed
	$(DEVELOPMENT)/bin/ruff check .
	$(DEVELOPMENT)/bin/ruff format --check .
	$(DEVELOPMENT)/bin/mypy

# Each backend needs a process of its own: Keras reads the backend once, at import.
TEST = $(DEVELOPMENT)/bin/pytest
$(ALL:%=quick-%): quick-%: $(DEVELOPMENT)/installed
	KERAS_BACKEND=$* $(UNOPTIMIZED) $(TEST) --part quick $(call tests_on,$*)

$(ALL:%=rest-%): rest-%: $(DEVELOPMENT)/installed
	KERAS_BACKEND=$* $(UNOPTIMIZED) $(TEST) --part rest -m "not optimized" \
		$(call tests_on,$*)

# Some bugs of XLA appear only with its optimizer.
$(COMPILED:%=optimized-%): optimized-%: $(DEVELOPMENT)/installed
	KERAS_BACKEND=$* $(TEST) -m optimized $(call tests_on,$*)

# Tests of the reference in `keras.ops`, which a backend without a module would use.
$(ALL:%=reference-%): reference-%: $(DEVELOPMENT)/installed
	REFERENCE=1 KERAS_BACKEND=$* $(UNOPTIMIZED) $(TEST) \
		--hypothesis-profile=quick -k "not XLA" $(REFERENCE)

# A current pip takes two thirds of the time of the pip of an older Python.
$(DEVELOPMENT)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEVELOPMENT)
	$(DEVELOPMENT)/bin/$(INSTALL) --upgrade pip
	$(DEVELOPMENT)/bin/$(INSTALL) --constraint constraints.txt \
		--editable ".[docs]" --group dev
	touch $@

# Tests the oldest versions that pyproject.toml allows.
test-oldest: $(OLDEST)/installed
	$(foreach backend,$(BACKEND),KERAS_BACKEND=$(backend) \
		$(OLDEST)/bin/pytest $(call tests_on,$(backend)) && ) true

$(OLDEST)/installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/$(INSTALL) --upgrade pip
	$(OLDEST)/bin/$(INSTALL) --constraint constraints-oldest.txt \
		--editable . --group dev
	touch $@

# Tests pre-releases, in a new environment each time. It may fail, so it does not check changes.
test-nightly:
	$(PYTHON) -m venv --clear $(NIGHTLY)
	$(NIGHTLY)/bin/$(INSTALL) --upgrade pip
	$(NIGHTLY)/bin/$(INSTALL) --pre --editable . --group dev
	$(foreach backend,$(BACKEND),KERAS_BACKEND=$(backend) \
		$(NIGHTLY)/bin/pytest $(call tests_on,$(backend));)

# Plants 100 small faults in code that computes, one at a time, and prints the faults that the
# quick tests don't notice: `make mutants FAULTS="--seed 7 --only keras_rank/ranking"`. The option
# `--part all` runs all tests.
mutants: $(DEVELOPMENT)/installed
	$(DEVELOPMENT)/bin/python tests/support/mutants.py --reference $(REFERENCE) \
		--elsewhere $(filter-out numpy,$(ALL)) $(FAULTS)

# Tests of trackers and tuners, which have too many dependencies for the other environments.
test-trackers: $(TRACKERS)/installed
	KERAS_BACKEND=jax $(TRACKERS)/bin/pytest tests/keras/test_experiment_trackers.py

# MLflow does not take pyarrow 26 yet.
$(TRACKERS)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TRACKERS)
	$(TRACKERS)/bin/$(INSTALL) --upgrade pip
	grep -v "^pyarrow==" constraints.txt > $(TRACKERS)/constraints.txt
	$(TRACKERS)/bin/$(INSTALL) --constraint $(TRACKERS)/constraints.txt \
		--editable . --group dev --group trackers
	touch $@

# Compares the compilers' estimates for a TPU and a GPU with budgets. Takes about 20 minutes.
# Neither device need be present.
test-compiled: $(FOR_TPU)/installed $(FOR_GPU)/installed
	KERAS_BACKEND=jax $(FOR_TPU)/bin/pytest tests/project/test_compiler_estimates.py
	KERAS_BACKEND=jax $(FOR_GPU)/bin/pytest tests/project/test_compiler_estimates.py

$(FOR_TPU)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FOR_TPU)
	$(FOR_TPU)/bin/$(INSTALL) --constraint constraints.txt \
		--editable . "jax[tpu]" hypothesis keras-rs pytest
	touch $@

# The libraries of CUDA are not needed. The package of its compiler has the assembler.
$(FOR_GPU)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FOR_GPU)
	$(FOR_GPU)/bin/$(INSTALL) --constraint constraints.txt --editable . \
		jax jax-cuda12-pjrt jax-cuda12-plugin nvidia-cuda-nvcc-cu12 \
		hypothesis keras-rs pytest
	touch $@

$(DEMO)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/$(INSTALL) --constraint constraints.txt \
		--editable ".[jax,examples]"
	touch $@

# Builds the site, in build/site/index.html. Every warning is an error.
docs: $(DOCS)/installed
	KERAS_BACKEND=numpy NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

$(DOCS)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/$(INSTALL) --constraint constraints.txt --editable ".[docs]"
	touch $@

# Draws the pictures of the pages with the libraries that the pictures compare.
pictures: $(DEVELOPMENT)/installed
	$(DEVELOPMENT)/bin/python docs/pictures.py

# Builds the wheel and the source archive in dist, and tests each in an empty environment.
package: $(DEVELOPMENT)/installed
	PYTHON=$(DEVELOPMENT)/bin/python .ci/smoke $(BACKEND)

# Measures all figures of the pages, and writes them into the pages and charts. Takes about
# half an hour, on an otherwise idle machine.
bench: $(DEVELOPMENT)/installed
	for backend in $(BACKEND); do \
		KERAS_BACKEND=$$backend $(DEVELOPMENT)/bin/python benchmarks/measure.py \
			--items 2000000 --output benchmarks/results/$$backend.json || exit 1; \
	done
	$(DEVELOPMENT)/bin/python benchmarks/calls.py --output benchmarks/results/calls.json
	KERAS_BACKEND=jax $(DEVELOPMENT)/bin/python benchmarks/catalogue_sizes.py \
		benchmarks/results/catalogue_sizes.json
	$(DEVELOPMENT)/bin/python benchmarks/evaluation.py --peers \
		--output benchmarks/results/tables.json
	$(DEVELOPMENT)/bin/python benchmarks/evaluation.py --lists 3000000 \
		--memory-limit 2GB --output benchmarks/results/tables.json
	$(DEVELOPMENT)/bin/python benchmarks/figures.py

# Writes the compilers' estimates for all metrics, and for keras-rs. Takes about an hour.
bench-compiled: $(FOR_TPU)/installed $(FOR_GPU)/installed
	$(FOR_TPU)/bin/python benchmarks/estimates.py tpu --output outputs/bench/tpu.jsonl
	$(FOR_GPU)/bin/python benchmarks/estimates.py gpu --output outputs/bench/gpu.jsonl

clean:
	rm -rf .venv build dist outputs
