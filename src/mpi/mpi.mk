# The MPI part: libyalm-mpi.so, which the engine opens where mpirun has started several processes. `make mpi` alone needs Open
# MPI or MPICH.

MPICC       ?= mpicc
MPI_SOURCES := $(wildcard src/mpi/*.c)
MPI_OBJECTS := $(MPI_SOURCES:%.c=$(BUILD)/%.o)
# What it has copies of: it is linked to neither the program nor the library that opens it.
MPI_SHARED  := $(BUILD)/src/util/error.o $(BUILD)/src/util/version.o
MPI_LIBRARY := $(if $(filter release,$(VARIANT)),,$(BUILD)/)libyalm-mpi.so

mpi: cpu $(MPI_LIBRARY)

$(MPI_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	@command -v $(MPICC) >/dev/null || \
	    { echo "make: $(MPICC) is needed: libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich" >&2; exit 1; }
	$(MPICC) $(BASE) $(CFLAGS) $(THREADS) -c -o $@ $<

$(MPI_LIBRARY): $(MPI_OBJECTS) $(MPI_SHARED) src/mpi/mpi.mk
	$(MPICC) -shared $(LINK) $(LDFLAGS) -o $@ $(filter %.o,$^) $(THREADS)

-include $(MPI_OBJECTS:.o=.d)
