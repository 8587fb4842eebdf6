# Stands in for bld/gasnet.mak of UPC++ where a copy of its release has none: which conduits there are and what GASNet's
# configuration says, for UPC++'s own Makefile.rules and Makefile.tests. Only for --enable-single with a build tree of GASNet.
ALL_CONDUITS = smp udp mpi ibv aries ucx
UNOFFICIAL_CONDUITS = mpi ucx

gasnet_fragment = $(upcxx_bld)/bld/gasnet.$(firstword $(UPCXX_DBGOPT)).mak
include $(upcxx_src)/bld/config.mak
include $(gasnet_fragment)

$(gasnet_fragment):
	@cd $(upcxx_bld)/bld/gasnet.$(firstword $(UPCXX_DBGOPT)) && \
	for probe in $(GASNET_CONFIG_SCRIPTS); do \
	    UPCXX_TOPSRC='$(upcxx_src)' $(UPCXX_BASH) $(upcxx_src)/utils/config/gasnet/$$probe || exit 1; \
	done >$@.new && mv $@.new $@

GASNET_CC = $(CONFIG_CC)
GASNET_CXX = $(CONFIG_CXX)
